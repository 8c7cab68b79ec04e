// Records what kube-apiserver's YAML package makes of texts, for crates/schema/tests/it/yaml.rs.
//
//	go run . FILE...
//
// Each line of a file is a case in JSON. The program keeps its text and replaces its outcome, so a
// new case needs only its text. A case whose outcome is not always the same is an error: Go visits
// the entries of a map in random order.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"sigs.k8s.io/yaml"
)

// A recorded text, and its outcome.
type testCase struct {
	Name string `json:"name,omitempty"`
	Text string `json:"text,omitempty"`
	// A text that is not UTF-8, in base64.
	Bytes []byte `json:"bytes,omitempty"`
	// The text as JSON.
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
	// What a strict decoder reports in addition.
	Strict string `json:"strict,omitempty"`
}

const repetitions = 200

func main() {
	for _, path := range os.Args[1:] {
		if err := record(path); err != nil {
			fmt.Fprintln(os.Stderr, path+":", err)
			os.Exit(1)
		}
	}
}

func record(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		var given testCase
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		outcome := given.decode()
		for range repetitions {
			if !reflect.DeepEqual(outcome, given.decode()) {
				return fmt.Errorf("line %d: the outcome is random", number)
			}
		}
		if err := encoder.Encode(outcome); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// decode returns the case with its outcome.
func (c testCase) decode() testCase {
	text := c.Bytes
	if text == nil {
		text = []byte(c.Text)
	}
	outcome := testCase{Name: c.Name, Text: c.Text, Bytes: c.Bytes}
	value, err := yaml.YAMLToJSON(text)
	if err != nil {
		outcome.Error = err.Error()
		return outcome
	}
	outcome.Value = value
	if _, err := yaml.YAMLToJSONStrict(text); err != nil {
		outcome.Strict = err.Error()
	}
	return outcome
}
