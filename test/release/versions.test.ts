import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { YAML } from "bun";
import manifest from "../../package.json" with { type: "json" };

const ROOT = join(import.meta.dir, "..", "..");
const read = (path: string) => Bun.file(join(ROOT, path)).text();
const { version } = manifest;

/** Returns all matches of the first group. */
async function find(path: string, pattern: RegExp): Promise<string[]> {
  return [...(await read(path)).matchAll(pattern)].map(([, found]) => found!);
}

test("the newest version of the changelog is the version of package.json", async () => {
  const [newest] = await find("CHANGELOG.md", /^## (\d+\.\d+\.\d+)$/gm);
  expect(newest).toBe(version);
});

test.each([
  ["Dockerfile", /image\.version="([^"]+)"/g],
  ["compose.yaml", /image: model-gateway:?(.*)$/gm],
  ["docs/deploy/kubernetes.yaml", /image: model-gateway:?(.*)$/gm],
  ["docs/start/installation.md", /model-gateway[@:](\d[\w.]*)/g],
  ["docs/start/installation.md", /\/download\/v([\d.]+)\//g],
])("%s names only the version of package.json (%p)", async (path, pattern) => {
  const found = await find(path, pattern);
  expect(found.length).toBeGreaterThan(0);
  expect(new Set(found)).toEqual(new Set([version]));
});

const CHART = "docs/deploy/helm/model-gateway/Chart.yaml";
const hasChart = existsSync(join(ROOT, CHART));

test.if(hasChart)("the versions of the Helm chart are the version of package.json", async () => {
  const chart = YAML.parse(await read(CHART));
  expect(chart).toMatchObject({ version, appVersion: version });
});

interface Step {
  readonly run?: string;
  readonly uses?: string;
}

interface Job {
  readonly steps: readonly Step[];
  readonly needs?: string | readonly string[];
}

const workflow = YAML.parse(await read(".github/workflows/release.yml")) as {
  readonly env: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
};

test("the workflow builds with the Bun of the image and of continuous integration", async () => {
  const [image] = await find("Dockerfile", /oven\/bun:([\d.]+)/g);
  const [integration] = await find(".ci/run", /^BUN_VERSION=(.+)$/gm);
  expect([image, integration]).toEqual([workflow.env.BUN_VERSION, workflow.env.BUN_VERSION]);
});

test("the workflow runs only scripts that package.json has, and publishes nothing before the checks", () => {
  const jobs = Object.entries(workflow.jobs);
  const commands = jobs.flatMap(([, { steps }]) => steps.map(({ run }) => run ?? ""));
  const scripts = commands.flatMap((command) => [...command.matchAll(/bun run ([\w:]+)/g)]);
  const names = scripts.map(([, name]) => name!);
  expect(names).toContain("build");
  expect(names.filter((name) => !(name in manifest.scripts))).toEqual([]);
  for (const [name, { needs }] of jobs) {
    if (name !== "check") expect(needs, name).toBeDefined();
  }
  const [first, ...others] = workflow.jobs.check!.steps.flatMap(({ run }) => run ?? []);
  expect(first).toContain("$GITHUB_REF_NAME");
  expect(others).toEqual([".ci/run"]);
});
