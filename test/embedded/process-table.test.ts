import { expect, test } from "bun:test";

test("a process is not taken for dead where no file can be opened to look at it", () => {
  const look = `
    const { openSync } = require("node:fs");
    const { commandLineOf, processRuns } = await import(process.env.TABLE);
    const seen = commandLineOf(process.pid) !== undefined;
    try { for (;;) openSync("/dev/null", "r"); } catch {}
    let told = "nothing";
    try { told = String(commandLineOf(process.pid)); } catch (error) { told = error.code; }
    console.log(JSON.stringify([seen, told, processRuns(process.pid)]));`;
  const { stdout } = Bun.spawnSync(
    ["sh", "-c", 'ulimit -n 128 && exec "$0" -e "$1"', process.execPath, look],
    { env: { ...process.env, TABLE: `${import.meta.dir}/../../db/embedded/process-table.ts` } },
  );
  expect(JSON.parse(stdout.toString())).toEqual(
    process.platform === "linux" ? [true, "EMFILE", true] : [true, expect.anything(), true],
  );
});
