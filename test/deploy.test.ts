import { describe, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CONFIG_VARIABLES } from "../src/platform/config/variables.ts";

/** The files by which others run the gateway: compose.yaml, Dockerfile, docs/deploy. */

// biome-ignore lint/suspicious/noExplicitAny: files of others' forms
type Json = any;

const root = join(import.meta.dir, "..");
const read = (path: string) => Bun.file(join(root, path)).text();
const compose = Bun.YAML.parse(await read("compose.yaml")) as Json;
const services = Object.entries<Json>(compose.services);
const gateways = services.filter(([, { image }]) => image?.startsWith("model-gateway:"));
const dockerfile = await read("Dockerfile");
const kubernetes = Bun.YAML.parse(await read("docs/deploy/kubernetes.yaml")) as Json[];
const kind = (name: string) => kubernetes.find((one) => one.kind === name);

describe("compose.yaml", () => {
  test("hands every setting to the gateways: by its file, or from it, but for what the container decides", () => {
    expect(gateways).toHaveLength(3);
    for (const [, { env_file, environment }] of gateways) {
      expect(env_file).toEqual([{ path: ".env", required: false }]);
      const fixed = Object.entries<string>(environment)
        .filter(([name, value]) => !value.startsWith(`\${${name}:`))
        .map(([name]) => name);
      expect(fixed).toEqual(["HOST", "PORT", "DATA_DIR"]);
      const known = CONFIG_VARIABLES.map(({ name }) => name);
      expect(Object.keys(environment).filter((name) => !known.includes(name))).toEqual([]);
    }
  });

  test("lets no service write, gain privileges or use up the machine, and looks whether each lives", () => {
    for (const [name, service] of services) {
      expect(service, name).toMatchObject({
        read_only: true,
        cap_drop: ["ALL"],
        security_opt: ["no-new-privileges:true"],
      });
      expect(Object.keys(service.deploy.resources.limits), name).toEqual([
        "cpus",
        "memory",
        "pids",
      ]);
      const isWatched =
        service.healthcheck !== undefined || service.image.startsWith("model-gateway:");
      expect(isWatched, name).toBe(true);
    }
    expect(dockerfile).toContain("HEALTHCHECK ");
  });

  test("has no password of its own, and shows Postgres and Redis to the gateways alone", () => {
    const { postgres, redis } = compose.services;
    expect(postgres.environment.POSTGRES_PASSWORD).toStartWith("${POSTGRES_PASSWORD:?");
    expect(compose.configs.redis.content).toContain('requirepass "${REDIS_PASSWORD:?');
    expect(compose.networks.data.internal).toBe(true);
    for (const service of [postgres, redis]) {
      expect(service).toMatchObject({ networks: ["data"] });
      expect(service.ports).toBeUndefined();
    }
  });
});

test("no file by which others run the gateway turns the test processor on, which credits money for nothing", async () => {
  for (const [, { environment }] of gateways) {
    expect(environment.GATEWAY_TEST_PAYMENTS).toEndWith(":-false}");
  }
  const unit = await read("docs/deploy/model-gateway.service");
  expect(unit).toMatch(/^Environment=GATEWAY_TEST_PAYMENTS=false$/m);
  expect(kind("ConfigMap").data.GATEWAY_TEST_PAYMENTS).toBe("false");
});

describe("the image", () => {
  test("gets what it copies", async () => {
    const letThrough = (await read(".dockerignore")).split("\n").filter((line) => line[0] === "!");
    const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)]
      .flatMap(([, sources]) => sources!.split(" "))
      .filter((source) => source !== "./");
    expect(copied.length).toBeGreaterThan(5);
    for (const source of copied) {
      expect(existsSync(join(root, source)), source).toBe(true);
      expect(letThrough, source).toContain(`!${source.split("/")[0]}`);
    }
  });

  test("starts with what the scripts of package.json set for Bun, which reads it as it starts", async () => {
    const { scripts } = JSON.parse(await read("package.json"));
    const unit = await read("docs/deploy/model-gateway.service");
    const settings = (scripts.start as string)
      .split(" ")
      .filter((word) => /^[A-Z]\w+=/i.test(word));
    expect(settings).toHaveLength(2);
    for (const setting of settings) {
      expect(dockerfile).toContain(setting);
      expect(unit).toContain(setting);
    }
  });
});

test.skipIf(Bun.which("systemd-analyze") === null)(
  "the systemd unit is valid for a program and a folder that exist",
  async () => {
    const folder = mkdtempSync(join(tmpdir(), "gateway-unit-"));
    try {
      const unit = join(folder, "model-gateway.service");
      const text = (await read("docs/deploy/model-gateway.service"))
        .replace("/usr/local/bin/bun", process.execPath)
        .replace(/^WorkingDirectory=.*$/m, `WorkingDirectory=${folder}`);
      await Bun.write(unit, text);
      const { stdout, stderr } = Bun.spawnSync(["systemd-analyze", "verify", unit]);
      const lines = `${stdout}${stderr}`.split("\n");
      expect(lines.filter((line) => line.includes("model-gateway.service"))).toEqual([]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  },
);

describe("kubernetes.yaml", () => {
  test("runs the gateway without privileges, with probes, limits, secrets, and a budget of disruptions", () => {
    const { spec } = kind("Deployment").spec.template;
    const [container] = spec.containers;
    expect(spec.securityContext).toMatchObject({
      runAsNonRoot: true,
      seccompProfile: { type: "RuntimeDefault" },
    });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    for (const probe of ["startupProbe", "readinessProbe", "livenessProbe"]) {
      expect(container[probe].httpGet, probe).toEqual({ path: "/healthz", port: "http" });
    }
    expect(container.resources.limits.memory).toBeDefined();
    expect(container.envFrom.flatMap(Object.keys)).toContain("secretRef");
    expect(kind("PodDisruptionBudget").spec.maxUnavailable).toBe(1);
  });

  test("sets only settings that exist", () => {
    const known = CONFIG_VARIABLES.map(({ name }) => name);
    const set = Object.keys(kind("ConfigMap").data);
    expect(set.filter((name) => !known.includes(name))).toEqual([]);
  });
});
