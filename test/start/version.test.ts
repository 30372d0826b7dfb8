import { afterAll, expect, test } from "bun:test";
import { version } from "../../package.json";
import { runCliProcess } from "../cli/cli-runs.ts";
import { exitOf, firstKeys, Grounds } from "../crash/gateway-process.ts";
import { askDashboard } from "../support/dashboard-session.ts";

const grounds = new Grounds("version");
afterAll(() => grounds.clear());

const json = async (response: Promise<Response>) => (await response).json();

test("the version of package.json is in the log, the health answer, the metrics, the description, the dashboard and the CLI", async () => {
  const dataDir = grounds.newDataDir();
  const gateway = grounds.launch({ dataDir });
  const baseUrl = await gateway.listening;

  expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  expect(JSON.parse(gateway.stdout().split("\n")[0]!)).toMatchObject({
    level: "info",
    version,
    msg: `starting model-gateway ${version}`,
  });
  expect(await json(fetch(`${baseUrl}/healthz`))).toEqual({ status: "ok", version });
  expect(await json(fetch(`${baseUrl}/openapi.json`))).toMatchObject({ info: { version } });
  expect(await (await fetch(`${baseUrl}/metrics`)).text()).toContain(
    `\ngateway_build_info{version="${version}"} 1\n`,
  );
  const key = firstKeys(dataDir).management_key;
  const session = askDashboard({ baseUrl }, "POST", "session", { key });
  expect(await json(session)).toMatchObject({ version });
  for (const option of ["--version", "-v"]) {
    const command = await runCliProcess({ DATA_DIR: dataDir }, option);
    expect(command).toEqual({ exitCode: 0, stdout: `${version}\n`, stderr: "" });
  }

  gateway.signal("SIGTERM");
  expect(await exitOf(gateway)).toBe(0);
}, 60_000);

test("the manifest for Kubernetes and the changelog name the version of package.json", async () => {
  const read = (path: string) => Bun.file(`${import.meta.dir}/../../${path}`).text();
  expect(await read("docs/deploy/kubernetes.yaml")).toContain(`image: model-gateway:${version}\n`);
  const newest = /^## (\d\S*)/m.exec(await read("CHANGELOG.md"))?.[1];
  expect(newest).toBe(version);
});
