import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readReport, totalLine, totalOf } from "./test-report.ts";

const folder = mkdtempSync(join(tmpdir(), "gateway-test-report-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const FILES = {
  "bad.test.ts": `describe("a group", () => { test("a", () => expect(1).toBe(2)); test("b", () => {}); });`,
  "good.test.ts": `test("a", () => {}); test.skip("b", () => {});`,
  "hook.test.ts": `describe("a group", () => { beforeAll(() => { throw new Error("no"); }); test("a", () => {}); });`,
  "unloadable.test.ts": `import "./missing.ts";`,
};

async function run(files: readonly string[]) {
  const path = join(folder, "report.xml");
  const options = ["--retry=1", "--parallel=2", "--reporter=junit", `--reporter-outfile=${path}`];
  const child = Bun.spawn(
    [process.execPath, "test", ...options, ...files.map((file) => `./${file}`)],
    {
      cwd: folder,
      stdio: ["ignore", "ignore", "ignore"],
    },
  );
  const exitCode = await child.exited;
  const report = readReport(path, files);
  rmSync(path, { force: true });
  return { exitCode, report };
}

test("a run counts each file's tests, and a file that fails in a run and not in the repetition as passed", async () => {
  const imports = `import { beforeAll, describe, expect, test } from "bun:test";\n`;
  for (const [file, text] of Object.entries(FILES))
    writeFileSync(join(folder, file), imports + text);
  const first = await run(Object.keys(FILES));
  expect(first.exitCode).toBe(1);
  expect(Object.fromEntries(first.report.files)).toEqual({
    "bad.test.ts": { passed: 1, failed: 1, skipped: 0 },
    "good.test.ts": { passed: 1, failed: 0, skipped: 1 },
    "hook.test.ts": { passed: 0, failed: 1, skipped: 0 },
    "unloadable.test.ts": { passed: 0, failed: 1, skipped: 0 },
  });
  expect(first.report.failedFiles).toEqual(["bad.test.ts", "hook.test.ts", "unloadable.test.ts"]);
  expect(totalLine(totalOf([first.report]))).toBe("2 passed, 3 failed, 1 skipped");

  writeFileSync(join(folder, "missing.ts"), "");
  writeFileSync(
    join(folder, "bad.test.ts"),
    imports + FILES["bad.test.ts"].replace("toBe(2)", "toBe(1)"),
  );
  writeFileSync(join(folder, "hook.test.ts"), `${imports}test("a", () => {});`);
  writeFileSync(join(folder, "unloadable.test.ts"), `${imports}test("a", () => {});`);
  const second = await run(first.report.failedFiles);
  expect(second.exitCode).toBe(0);
  expect(totalLine(totalOf([first.report, second.report]))).toBe("5 passed, 0 failed, 1 skipped");
}, 60_000);

test("a run without a report counts as failed", () => {
  const report = readReport(join(folder, "none.xml"), ["bad.test.ts"]);
  expect(totalLine(totalOf([report]))).toBe("0 passed, 1 failed");
});
