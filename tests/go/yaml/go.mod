// Records what kube-apiserver's YAML package makes of texts.
module keelson.dev/tests/yaml

go 1.26.0

require sigs.k8s.io/yaml v1.6.0

require go.yaml.in/yaml/v2 v2.4.3 // indirect
