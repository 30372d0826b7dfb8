import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import manifest from "../../package.json" with { type: "json" };
import { billOfMaterials } from "../../src/main/release/sbom.ts";
import { exitOf, firstKeys, Grounds } from "../crash/gateway-process.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { FEATURE_SETTINGS, useEveryPart } from "./features.ts";

const TIMEOUT_MS = 240_000;
const ROOT = join(import.meta.dir, "..", "..");
/** Bytes of the package as it is downloaded. The embedded Postgres and Pyodide are packages of their own. */
const MAX_PACKED_BYTES = 12_000_000;
/** Bytes of the package and of everything that it installs. More than half of them are the embedded Postgres. */
const MAX_INSTALLED_BYTES = 120_000_000;

const grounds = new Grounds("npm-package");
const installed = join(grounds.folder, "installed");
const packageFolder = join(installed, "node_modules", "model-gateway");
const command = join(installed, "node_modules", ".bin", "model-gateway");
afterAll(() => grounds.clear());

beforeAll(async () => {
  const built = join(grounds.folder, "package");
  run([process.execPath, join(ROOT, "src/main/release/package.ts"), built], ROOT);
  const packer = Bun.which("npm") === null ? [process.execPath, "pm"] : ["npm"];
  run([...packer, "pack"], built);
  const tarball = readdirSync(built).find((name) => name.endsWith(".tgz"))!;
  expect(tarball).toBe(`model-gateway-${manifest.version}.tgz`);
  expect(Bun.file(join(built, tarball)).size).toBeLessThan(MAX_PACKED_BYTES);
  mkdirSync(installed);
  await Bun.write(join(installed, "package.json"), "{}");
  run([process.execPath, "add", join(built, tarball)], installed);
}, TIMEOUT_MS);

/** Runs a command and returns its output. Throws if it fails. */
function run(parameters: readonly string[], cwd: string): string {
  const { stdout, stderr, success } = Bun.spawnSync([...parameters], { cwd });
  if (!success) throw new Error(`${parameters.join(" ")}: ${stderr.toString()}`);
  return stdout.toString();
}

test(
  "the package, installed in an empty folder, starts by its command and serves every part",
  async () => {
    const dataDir = grounds.newDataDir();
    const gateway = grounds.launch({ dataDir, program: command, environment: FEATURE_SETTINGS });
    const baseUrl = await gateway.listening;
    await useEveryPart(baseUrl, firstKeys(dataDir).secret_key);
    expect(isAlive(new URL(baseUrl).port)).toBe(true);
    gateway.signal("SIGTERM");
    expect(await exitOf(gateway)).toBe(0);
    expect(isAlive(new URL(baseUrl).port)).toBe(false);
  },
  TIMEOUT_MS,
);

/** Runs the health check of the container image. */
function isAlive(port: string): boolean {
  const probe = join(packageFolder, "src", "main", "start", "health-probe.js");
  return Bun.spawnSync([process.execPath, probe], { env: { PORT: port } }).success;
}

test("the package and everything that it installs take less than 120 MB", () => {
  const files = [...new Glob("**").scanSync({ cwd: installed, dot: true, absolute: true })];
  const bytes = files.reduce((sum, path) => sum + Bun.file(path).size, 0);
  expect(bytes).toBeLessThan(MAX_INSTALLED_BYTES);
});

test("bunx runs the command and its CLI", () => {
  const bunx = (...parameters: string[]) =>
    run([process.execPath, "x", "--no-install", "model-gateway", ...parameters], installed);
  expect(bunx("--version")).toBe(`${manifest.version}\n`);
  expect(bunx("--help")).toContain("model-gateway cli <noun> <verb>");
  expect(bunx("cli", "--version")).toContain(manifest.version);
  const key = bunx("cli", "keys", "generate").trim();
  expect(key).toMatch(/gateway_sk_\w{38}/);
});

test.skipIf(Bun.which("node") === null)(
  "under Node the command names Bun and its installation",
  () => {
    const { stderr, exitCode } = Bun.spawnSync(["node", command], { cwd: installed });
    expect(stderr.toString()).toContain("npm install -g bun");
    expect(exitCode).toBe(1);
  },
);

test("the package contains the patched Postgres driver, which rejects a server without TLS", async () => {
  using server = Bun.listen({
    hostname: "127.0.0.1",
    port: 0,
    // Postgres answers a request for TLS with one letter.
    socket: { data: (socket) => void socket.write("N") },
  });
  const gateway = grounds.launch({
    dataDir: grounds.newDataDir(),
    program: command,
    environment: {
      DATABASE_URL: `postgres://gateway:secret@127.0.0.1:${server.port}/gateway?sslmode=require`,
      GATEWAY_MASTER_KEY: MASTER_KEY.toBase64(),
    },
  });
  expect(await exitOf(gateway)).toBe(1);
  expect(gateway.stderr()).toContain("the server does not offer TLS");
});

test("the bill of materials lists the packages whose licenses the package contains, and what is installed", async () => {
  const { components } = JSON.parse(await billOfMaterials());
  const listed = components.map(({ group, name, version }: Record<string, string>) =>
    group === undefined ? `${name} ${version}` : `${group}/${name} ${version}`,
  );
  const notices = await Bun.file(join(packageFolder, "THIRD-PARTY-NOTICES.txt")).text();
  const bundled = [...notices.matchAll(/^== (\S+ \S+) \(/gm)].map(([, name]) => name!);
  expect(bundled).toContain(`postgres ${manifest.dependencies.postgres}`);
  for (const name of bundled) expect(listed).toContain(name);
  expect(listed).toContain(`pyodide ${manifest.dependencies.pyodide}`);
  expect(listed).toContain(`bun ${Bun.version}`);
});

test("the package names no folder of the machine that built it", async () => {
  for await (const path of new Glob("**/*.js").scan(packageFolder)) {
    const text = await Bun.file(join(packageFolder, path)).text();
    expect(text.includes(ROOT), path).toBe(false);
  }
});
