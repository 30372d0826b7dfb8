import { afterAll, expect, test } from "bun:test";
import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { runCliProcess } from "../cli/cli-runs.ts";
import { exitOf, firstKeys, Grounds } from "../crash/gateway-process.ts";

const TIMEOUT_MS = 120_000;
const CONTENT = "What is kept.";
const grounds = new Grounds("backup");
afterAll(() => grounds.clear(), TIMEOUT_MS);

test(
  "a running gateway's embedded database and files move to another data folder, where its keys work",
  async () => {
    const dataDir = await grounds.newDataDirWithDatabase();
    const gateway = grounds.launch({ dataDir });
    const baseUrl = await gateway.listening;
    const { secret_key: key } = firstKeys(dataDir);
    const authorization = `Bearer ${key}`;
    const form = new FormData();
    form.append("purpose", "user_data");
    form.append("file", new File([CONTENT], "kept.txt"));
    const uploaded = await fetch(`${baseUrl}/v1/files`, {
      method: "POST",
      headers: { authorization },
      body: form,
    });
    const { id } = (await uploaded.json()) as { id: string };
    const archive = join(grounds.folder, "embedded.tar");
    const made = await runCliProcess({ DATA_DIR: dataDir }, "backup", archive);
    expect(made).toMatchObject({ exitCode: 0 });
    const beside = await runCliProcess({ DATA_DIR: dataDir }, "restore", archive);
    expect(beside.stderr).toContain("the database is not empty");
    gateway.signal("SIGTERM");
    expect(await exitOf(gateway)).toBe(0);

    const restoredDir = grounds.newDataDir();
    const keyless = await runCliProcess({ DATA_DIR: restoredDir }, "restore", archive);
    expect(keyless).toMatchObject({ exitCode: 1 });
    expect(keyless.stderr).toContain("DATA_DIR/master-key");
    mkdirSync(restoredDir, { mode: 0o711 });
    copyFileSync(join(dataDir, "master-key"), join(restoredDir, "master-key"));
    const put = await runCliProcess({ DATA_DIR: restoredDir }, "restore", archive);
    expect(put).toMatchObject({ exitCode: 0 });
    const restored = grounds.launch({ dataDir: restoredDir });
    const content = await fetch(`${await restored.listening}/v1/files/${id}/content`, {
      headers: { authorization },
    });
    expect(await content.text()).toBe(CONTENT);
    restored.signal("SIGTERM");
    expect(await exitOf(restored)).toBe(0);
  },
  TIMEOUT_MS,
);
