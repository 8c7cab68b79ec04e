package dev.keelson;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceBuilder;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * The fabric8 client with a Keelson server. KUBECONFIG names the administrator's kubeconfig, KEELSON_TOKEN
 * is a token of the same user: fabric8 cannot read the elliptic curve key of the kubeconfig.
 */
class ClientTest {
  private static final String NAMESPACE = "java";
  private static KubernetesClient client;

  @BeforeAll
  static void connect() {
    Config config = Config.fromKubeconfig(new File(System.getenv("KUBECONFIG")));
    config.setClientCertData(null);
    config.setClientKeyData(null);
    config.setOauthToken(System.getenv("KEELSON_TOKEN"));
    client = new KubernetesClientBuilder().withConfig(config).build();
    client.namespaces().resource(new NamespaceBuilder()
        .withNewMetadata().withName(NAMESPACE).endMetadata().build()).create();
  }

  @AfterAll
  static void close() {
    client.close();
  }

  private static ConfigMap map(String name, String value) {
    return new ConfigMapBuilder().withNewMetadata().withName(name).withNamespace(NAMESPACE)
        .addToLabels("test", name.substring(0, 1)).endMetadata()
        .addToData("value", value).build();
  }

  @Test
  void listsByPages() {
    for (int i = 0; i < 5; i++) {
      client.resource(map("p" + i, "a")).create();
    }
    List<String> names = new ArrayList<>();
    String next = null;
    do {
      var page = client.configMaps().inNamespace(NAMESPACE).list(new ListOptionsBuilder()
          .withLabelSelector("test=p").withLimit(2L).withContinue(next).build());
      page.getItems().forEach(item -> names.add(item.getMetadata().getName()));
      next = page.getMetadata().getContinue();
    } while (next != null && !next.isEmpty());
    assertEquals(List.of("p0", "p1", "p2", "p3", "p4"), names);
  }

  @Test
  void patches() {
    var resource = client.resource(map("m", "a"));
    resource.create();
    Map<PatchType, String> bodies = Map.of(
        PatchType.JSON, "[{\"op\":\"replace\",\"path\":\"/data/value\",\"value\":\"JSON\"}]",
        PatchType.JSON_MERGE, "{\"data\":{\"value\":\"JSON_MERGE\"}}",
        PatchType.STRATEGIC_MERGE, "{\"data\":{\"value\":\"STRATEGIC_MERGE\"}}");
    bodies.forEach((type, body) -> {
      ConfigMap patched = client.configMaps().inNamespace(NAMESPACE).withName("m")
          .patch(PatchContext.of(type), body);
      assertEquals(type.name(), patched.getData().get("value"));
    });
  }

  @Test
  void serverSideApply() {
    ConfigMap applied = client.resource(map("s", "one")).fieldManager("java").serverSideApply();
    assertEquals("java", applied.getMetadata().getManagedFields().get(0).getManager());
    var conflict = assertThrows(KubernetesClientException.class,
        () -> client.resource(map("s", "two")).fieldManager("other").serverSideApply());
    assertEquals(409, conflict.getCode());
    ConfigMap forced = client.resource(map("s", "two")).fieldManager("other").forceConflicts()
        .serverSideApply();
    assertEquals("two", forced.getData().get("value"));
  }

  @Test
  void watches() throws InterruptedException {
    BlockingQueue<String> events = new LinkedBlockingQueue<>();
    var watch = client.configMaps().inNamespace(NAMESPACE).withLabel("test", "w").watch(
        new Watcher<>() {
          @Override
          public void eventReceived(Action action, ConfigMap map) {
            events.add(action + " " + map.getData().get("value"));
          }

          @Override
          public void onClose(WatcherException cause) {
          }
        });
    client.resource(map("w", "one")).create();
    client.resource(map("w", "two")).update();
    client.resource(map("w", "two")).delete();
    for (String expected : List.of("ADDED one", "MODIFIED two", "DELETED two")) {
      assertEquals(expected, events.poll(60, TimeUnit.SECONDS));
    }
    watch.close();
  }

  @Test
  void informers() throws InterruptedException {
    client.resource(map("i1", "one")).create();
    BlockingQueue<String> added = new LinkedBlockingQueue<>();
    var informer = client.configMaps().inNamespace(NAMESPACE).withLabel("test", "i").inform();
    informer.addEventHandler(new io.fabric8.kubernetes.client.informers.ResourceEventHandler<>() {
      @Override
      public void onAdd(ConfigMap map) {
        added.add(map.getMetadata().getName());
      }

      @Override
      public void onUpdate(ConfigMap before, ConfigMap after) {
      }

      @Override
      public void onDelete(ConfigMap map, boolean isUnknown) {
      }
    });
    client.resource(map("i2", "two")).create();
    assertEquals("i1", added.poll(60, TimeUnit.SECONDS));
    assertEquals("i2", added.poll(60, TimeUnit.SECONDS));
    informer.close();
  }

  @Test
  void customResources() {
    String definition = """
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata: {name: kites.java.example.com}
        spec:
          group: java.example.com
          scope: Namespaced
          names: {plural: kites, singular: kite, kind: Kite, listKind: KiteList}
          versions:
          - name: v1
            served: true
            storage: true
            subresources: {status: {}}
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec:
                    type: object
                    properties:
                      tails: {type: integer, minimum: 0}
                      color: {type: string, default: red}
                  status: {type: object, properties: {up: {type: boolean}}}
        """;
    client.load(new java.io.ByteArrayInputStream(definition.getBytes())).create();
    client.apiextensions().v1().customResourceDefinitions().withName("kites.java.example.com")
        .waitUntilCondition(
            stored -> stored.getStatus() != null && stored.getStatus().getConditions().stream()
                .anyMatch(c -> c.getType().equals("Established") && c.getStatus().equals("True")),
            10, java.util.concurrent.TimeUnit.SECONDS);
    var kites = client.genericKubernetesResources("java.example.com/v1", "Kite")
        .inNamespace(NAMESPACE);
    GenericKubernetesResource kite = new GenericKubernetesResourceBuilder()
        .withApiVersion("java.example.com/v1").withKind("Kite")
        .withNewMetadata().withName("k").endMetadata()
        .addToAdditionalProperties("spec", Map.of("tails", 2)).build();
    GenericKubernetesResource created = kites.resource(kite).create();
    assertEquals("red", created.<String>get("spec", "color"));
    created.setAdditionalProperty("status", Map.of("up", true));
    GenericKubernetesResource updated = kites.resource(created).updateStatus();
    assertTrue(updated.<Boolean>get("status", "up"));
    kite.setAdditionalProperty("spec", Map.of("tails", -1));
    kite.getMetadata().setName("bad");
    var invalid = assertThrows(KubernetesClientException.class,
        () -> kites.resource(kite).create());
    assertEquals(422, invalid.getCode());
    assertEquals(1, kites.list().getItems().size());
  }
}
