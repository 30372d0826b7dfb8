import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { YAML } from "bun";
import manifest from "../../package.json" with { type: "json" };
import {
  DOCUMENTATION_FOLDER,
  readSource,
  sourceFiles,
} from "../../src/http/system/documentation/pages.ts";
import { CONFIG_VARIABLES } from "../../src/platform/config/variables.ts";

/* What can be known of the image and the composition without an engine to build them. */

const root = join(import.meta.dir, "..", "..");
const textOf = (name: string) => readFileSync(join(root, name), "utf8");
const dockerfile = textOf("Dockerfile");

test("all that the image copies is there, and is let through to the engine", () => {
  const sources = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, names]) =>
    names!.split(" "),
  );
  expect(sources.length).toBeGreaterThan(5);
  const allowed = textOf(".dockerignore").split("\n");
  expect(allowed[0]).toBe("*");
  for (const source of sources) {
    expect(existsSync(join(root, source))).toBeTrue();
    expect(allowed).toContain(`!${source.split("/")[0]}`);
  }
});

test("the build of the image has the files outside docs that pages link", () => {
  const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, names]) =>
    names!.split(" "),
  );
  for (const page of sourceFiles().filter((file) => file.endsWith(".md"))) {
    for (const [, link] of readSource(page).matchAll(/\]\((\.\.\/[^)#\s]+)/g)) {
      const path = relative(root, join(DOCUMENTATION_FOLDER, dirname(page), link!));
      expect({ page, top: copied.includes(path.split("/")[0]!) }).toEqual({ page, top: true });
    }
  }
});

test("the image holds what its installation and its start need", () => {
  for (const patch of Object.values(manifest.patchedDependencies)) {
    expect(dockerfile).toContain(`COPY ${patch.slice(0, patch.lastIndexOf("/"))} `);
  }
  // The build bundles each program under the name of its source.
  const programs = [...dockerfile.matchAll(/"(src\/[^"]+)\.js"/g)].map(([, name]) => `${name}.ts`);
  expect(programs).toHaveLength(2);
  for (const name of programs) expect(existsSync(join(root, name))).toBeTrue();
  const settings = manifest.scripts.start.match(/\bBUN_\w+=[\d.]+/g)!;
  expect(settings).toHaveLength(2);
  for (const setting of settings) expect(dockerfile).toContain(setting);
  expect(dockerfile).toMatch(/^USER bun$/m);
  const images = dockerfile.match(/oven\/bun:\S+/g)!;
  expect(images).toHaveLength(2);
  expect(new Set(images).size).toBe(1);
  const [, published] = dockerfile.split(/^FROM oven/m);
  expect(published).not.toMatch(/^COPY (?!--from)/m);
});

interface Composition {
  readonly services: Record<
    string,
    { readonly environment?: Record<string, string>; readonly stop_grace_period?: string }
  >;
  readonly configs: Record<string, { readonly content: string }>;
}

test("the composition sets nothing but what the gateway reads, and balances over all that it starts", () => {
  const { services, configs } = YAML.parse(textOf("compose.yaml")) as Composition;
  const gateways = Object.keys(services).filter((name) => name.startsWith("gateway-"));
  expect(gateways).toHaveLength(3);
  const known = CONFIG_VARIABLES.map(({ name }) => name);
  const graceMs = Number(
    CONFIG_VARIABLES.find(({ name }) => name === "GATEWAY_SHUTDOWN_GRACE_MS")!.default,
  );
  for (const name of gateways) {
    const { environment, stop_grace_period } = services[name]!;
    for (const variable of Object.keys(environment!)) expect(known).toContain(variable);
    expect(Number.parseInt(stop_grace_period!, 10) * 1_000).toBeGreaterThan(graceMs + 15_000);
    expect(configs["load-balancer"]!.content).toContain(`${name}:3000`);
  }
});

test("where no gateway is ready, as without Redis, the balancer sends to whichever lives", () => {
  const { configs } = YAML.parse(textOf("compose.yaml")) as Composition;
  const { content } = configs["load-balancer"]!;
  const [ready, otherwise] = content.split("handle_errors {");
  expect(ready).toMatch(/reverse_proxy \{\s+import gateways\s[^}]*health_uri \/readyz\n/);
  expect(otherwise).toContain("status_code} == 503");
  expect(otherwise).toMatch(/reverse_proxy @\S+ \{\s+import gateways\s[^}]*health_uri \/healthz\n/);
});
