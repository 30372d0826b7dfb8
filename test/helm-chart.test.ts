import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Glob } from "bun";
import { version } from "../package.json";
import { CONFIG_VARIABLES } from "../src/platform/config/variables.ts";

/** The chart for Helm. What Helm itself must say is tried if `helm` is on the PATH. */

// biome-ignore lint/suspicious/noExplicitAny: files of others' forms
type Json = any;

const chart = join(import.meta.dir, "..", "docs", "deploy", "helm", "model-gateway");
const read = (path: string) => Bun.file(join(chart, path)).text();
const values = Bun.YAML.parse(await read("values.yaml")) as Json;
const manifest = Bun.YAML.parse(await read("../../kubernetes.yaml")) as Json[];
const known = CONFIG_VARIABLES.map(({ name }) => name);

test("the chart and the program that it starts have the version of package.json", async () => {
  const { version: ofChart, appVersion } = Bun.YAML.parse(await read("Chart.yaml")) as Json;
  expect({ ofChart, appVersion }).toEqual({ ofChart: version, appVersion: version });
});

test("values and templates name only settings that exist", async () => {
  for await (const path of new Glob("**/*.{yaml,txt,tpl}").scan({ cwd: chart })) {
    const text = await read(path);
    const named = text.matchAll(/\b((?:GATEWAY|S3|OPENAI)_[A-Z_]+|DATA_DIR|\w+_URL)\b/g);
    const unknown = [...named].map(([, name]) => name!).filter((name) => !known.includes(name));
    expect({ path, unknown }).toEqual({ path, unknown: [] });
  }
  expect(values.config.GATEWAY_TEST_PAYMENTS).toBe("false");
});

test("the schema describes each value, and each value that a template reads exists", async () => {
  const schema = JSON.parse(await read("values.schema.json"));
  const { global: _, ...described } = schema.properties;
  expect(Object.keys(described).sort()).toEqual(Object.keys(values).sort());
  for (const [name, { properties }] of Object.entries<Json>(described)) {
    if (properties === undefined) continue;
    expect(Object.keys(properties).sort(), name).toEqual(Object.keys(values[name]).sort());
  }
  for await (const path of new Glob("templates/*").scan({ cwd: chart })) {
    for (const [, name, member] of (await read(path)).matchAll(
      /\.Values\.(\w+)(?:\.([a-z]\w*))?/g,
    )) {
      expect({ path, name, exists: name! in values }).toEqual({ path, name, exists: true });
      const exists = member === undefined || member in values[name!];
      expect({ path, member, exists }).toEqual({ path, member, exists: true });
    }
  }
});

const REQUIRED = {
  DATABASE_URL: "postgres://db/gateway",
  REDIS_URL: "redis://redis",
  GATEWAY_MASTER_KEY: "key",
};

const hasHelm = Bun.which("helm") !== null;
if (!hasHelm) console.warn("NO helm on the PATH: the rendering of the chart is NOT TESTED.");

describe.skipIf(!hasHelm)("rendered by helm", () => {
  function helm(command: string, settings: object): { code: number; output: string } {
    const folder = mkdtempSync(join(tmpdir(), "gateway-helm-"));
    try {
      const file = join(folder, "values.json");
      writeFileSync(file, JSON.stringify(settings));
      const target =
        command === "template" ? ["release", "--kube-version", "1.31.0"] : ["--strict"];
      const child = Bun.spawnSync(["helm", command, ...target, "--values", file, chart]);
      return { code: child.exitCode, output: `${child.stdout}${child.stderr}` };
    } finally {
      rmSync(folder, { recursive: true });
    }
  }

  function rendered(settings: object): Map<string, Json> {
    const { code, output } = helm("template", settings);
    expect({ code, output: code === 0 ? "" : output }).toEqual({ code: 0, output: "" });
    const documents = Bun.YAML.parse(output) as Json[];
    return new Map(documents.filter(Boolean).map((document) => [document.kind, document]));
  }

  test("the chart passes lint", () => {
    const { code, output } = helm("lint", { secrets: REQUIRED });
    expect({ code, output: code === 0 ? "" : output }).toEqual({ code: 0, output: "" });
  });

  test("the defaults run three gateways without privileges, which read the settings and secrets", () => {
    const kinds = rendered({ secrets: REQUIRED });
    expect([...kinds.keys()].sort()).toEqual([
      ...["ConfigMap", "Deployment", "PodDisruptionBudget", "Secret", "Service", "ServiceAccount"],
    ]);
    const { replicas, template } = kinds.get("Deployment").spec;
    expect(replicas).toBe(3);
    const [container] = template.spec.containers;
    expect(template.spec.securityContext).toMatchObject({
      runAsNonRoot: true,
      seccompProfile: { type: "RuntimeDefault" },
    });
    expect(container).toMatchObject({
      image: `model-gateway:${version}`,
      securityContext: {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      },
    });
    const [ofManifest] = manifest.find(({ kind }) => kind === "Deployment").spec.template.spec
      .containers;
    for (const part of ["ports", "startupProbe", "readinessProbe", "livenessProbe", "resources"]) {
      expect(container[part], part).toEqual(ofManifest[part]);
    }
    expect(container.volumeMounts.map(({ mountPath }: Json) => mountPath)).toEqual([
      "/data",
      "/tmp",
    ]);
    expect(container.envFrom).toEqual([
      { configMapRef: { name: kinds.get("ConfigMap").metadata.name } },
      { secretRef: { name: kinds.get("Secret").metadata.name } },
    ]);
    expect(kinds.get("Secret").stringData).toEqual(REQUIRED);
  });

  test("each part that is enabled is rendered, and refers to the others", () => {
    const kinds = rendered({
      existingSecret: "mine",
      gatewayConfig: { providers: [{ id: "a", type: "ollama" }] },
      ingress: { enabled: true, hosts: ["a.example.com"] },
      networkPolicy: { enabled: true },
      serviceMonitor: { enabled: true },
      autoscaling: { enabled: true, targetRequestsInFlight: 1000 },
    });
    const deployment = kinds.get("Deployment");
    const { name } = deployment.metadata;
    expect(kinds.has("Secret")).toBe(false);
    expect(deployment.spec.replicas).toBeUndefined();
    expect(kinds.get("HorizontalPodAutoscaler").spec.scaleTargetRef.name).toBe(name);
    expect(kinds.get("HorizontalPodAutoscaler").spec.metrics).toHaveLength(2);
    const [rule] = kinds.get("Ingress").spec.rules;
    expect(rule.http.paths[0].backend.service.name).toBe(kinds.get("Service").metadata.name);
    const [endpoint] = kinds.get("ServiceMonitor").spec.endpoints;
    expect(endpoint.authorization.credentials).toEqual({
      name: "mine",
      key: "GATEWAY_METRICS_TOKEN",
    });
    const labels = deployment.spec.template.metadata.labels;
    for (const selector of [
      deployment.spec.selector.matchLabels,
      kinds.get("Service").spec.selector,
      kinds.get("NetworkPolicy").spec.podSelector.matchLabels,
      kinds.get("PodDisruptionBudget").spec.selector.matchLabels,
    ]) {
      expect(labels).toMatchObject(selector);
    }
    // The file of providers is the last of the two config maps.
    const file = JSON.parse(kinds.get("ConfigMap").data["gateway.config.json"]);
    expect(file).toEqual({ providers: [{ id: "a", type: "ollama" }] });
  });

  test("one gateway without Redis stops before its replacement starts", () => {
    const { REDIS_URL: _, ...secrets } = REQUIRED;
    const kinds = rendered({ clustered: false, replicaCount: 1, secrets });
    expect(kinds.get("Deployment").spec.strategy).toEqual({ type: "Recreate" });
    expect(kinds.has("PodDisruptionBudget")).toBe(false);
  });

  test.each([
    [{}, "secrets.DATABASE_URL is not set"],
    [{ secrets: { ...REQUIRED, REDIS_URL: "" } }, "secrets.REDIS_URL is not set"],
    [{ secrets: REQUIRED, clustered: false }, "replicaCount is above 1"],
    [{ secrets: REQUIRED, serviceMonitor: { enabled: true } }, "GATEWAY_METRICS_TOKEN"],
    [{ secrets: REQUIRED, replicaCont: 2 }, "replicaCont"],
    [{ secrets: REQUIRED, config: { lower: "x" } }, "lower"],
  ])("values %j are refused", (settings, named) => {
    const { code, output } = helm("template", settings);
    expect(code).not.toBe(0);
    expect(output).toContain(named);
  });
});
