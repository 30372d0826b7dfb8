import { afterEach, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { PythonPool } from "../../../src/inference/tools/code-interpreter/python-pool.ts";
import { until } from "../../support/until.ts";
import { hasSeccomp, sayWhySkipped } from "./platform.ts";
import { createPool, createRuns } from "./python-runs.ts";

const LOST = "Its variables and the files that it has written are lost.";

sayWhySkipped();

describe.skipIf(!hasSeccomp)("a run of Python", () => {
  let pool: PythonPool;

  afterEach(() => pool.close());

  test("that never ends is killed at its time limit, and the next one gets a new interpreter", async () => {
    pool = createPool({ maxRunMs: 2_500 });
    const { run } = createRuns(pool);
    await run("x = 1");
    for (const endless of [
      'print("begun")\nwhile True: pass',
      // In JavaScript, which no exception of Python's interrupts.
      'from pyodide.ffi import to_js\none = to_js([1])\none.length = 4294967295\nprint("begun")\nwhile True: one.includes(7)',
      // In a regular expression.
      'import re\nprint("begun")\nre.match(r"(a+)+$", "a" * 60 + "b")',
      'import asyncio\nprint("begun")\nawait asyncio.Event().wait()',
      'import time\nprint("begun")\ntime.sleep(1e6)',
    ]) {
      const { output, isFailed } = await run(endless);
      expect(output.endsWith(`begun\n\n[Ended after 60 seconds. ${LOST}]`)).toBe(true);
      expect(isFailed).toBe(true);
    }
    const { output, isFailed } = await run('print("x" in globals())');
    expect(output).toBe(`This is a new Python interpreter. ${LOST}\nFalse\n`);
    expect(isFailed).toBe(false);
  }, 60_000);

  test("that allocates without bound gets a MemoryError, and goes on", async () => {
    pool = createPool({ maxProcesses: 1 });
    const { run } = createRuns(pool);
    const { output } = await run("kept = []\nwhile True: kept.append(bytearray(10_000_000))");
    expect(output.trim()).toEndWith("MemoryError");
    expect((await run("kept = None; print(1 + 1)")).output.trim()).toBe("2");
  }, 60_000);

  test("that fills the memory outside of Python is killed, and its memory is given back", async () => {
    pool = createPool({ maxProcesses: 1 });
    const { run } = createRuns(pool);
    const { output, isFailed } = await run(
      'piece = b"x" * 8_000_000\nwith open("large", "wb") as file:\n    while True: file.write(piece)',
    );
    expect([output, isFailed]).toEqual([`[Ended because it used too much memory. ${LOST}]`, true]);
    expect((await run("1 + 1")).output).toContain("2");
  }, 60_000);

  test("shows a bounded part of what it prints, and sees to its end", async () => {
    pool = createPool({ maxProcesses: 1 });
    const { run } = createRuns(pool);
    const { output } = await run(
      'import sys\nfor _ in range(3_000): print("é" * 10_000)\nfor _ in range(100): print("x" * 10_000, file=sys.stderr)\nend = "reached"',
    );
    expect(Buffer.byteLength(output)).toBeLessThan(66_000);
    expect(output).toEndWith("[cut after 65536 bytes of output]");
    expect(output.replaceAll(/[é\n]/g, "")).toBe("[cut after 65536 bytes of output]");
    expect((await run("print(end)")).output.trim()).toBe("reached");
  }, 60_000);

  test("brings a bounded number and size of pictures, and names the other files", async () => {
    pool = createPool({ maxProcesses: 1 });
    const { run } = createRuns(pool);
    const { output, images } = await run(
      'head = b"\\x89PNG\\r\\n\\x1a\\n" + bytes(4) + b"IHDR" + bytes([0, 0, 0, 2] * 2)\nfor number in range(20): open(f"{number:02}.png", "wb").write(head + bytes(100))\nopen("vast.png", "wb").write(head + bytes(5_000_000))',
    );
    expect(images).toHaveLength(8);
    expect(output).toContain("Files written: 08.png (124 bytes)");
    expect(output).toContain("vast.png (5000024 bytes)");
    expect(output.match(/\[picture: \d\d\.png\]/g)).toHaveLength(8);
  }, 60_000);

  test("survives thousands of files, deep folders, and links that lead in circles", async () => {
    pool = createPool({ maxProcesses: 1 });
    const { run } = createRuns(pool);
    const { isFailed } = await run(
      'import os\nfor number in range(5_000): open(f"f{number}", "w").close()\npath = "."\nfor _ in range(200):\n    path += "/d"\n    os.mkdir(path)\nos.symlink("/mnt/data", "d/round")',
    );
    expect(isFailed).toBe(false);
    expect((await run("1 + 1")).output.trim()).toBe("2");
  }, 60_000);

  test("ends with its call, whose error it is", async () => {
    pool = createPool();
    const { run } = createRuns(pool);
    await run("x = 1");
    const gone = new AbortController();
    const running = run("while True: pass", gone.signal);
    setTimeout(() => gone.abort(new Error("the client has gone")), 300);
    expect(running).rejects.toThrow("the client has gone");
    await running.catch(() => {});
    await until("the process to be gone", () => pool.size <= 1);
  }, 60_000);
});

describe.skipIf(!hasSeccomp)("interpreters", () => {
  test("are at most so many: of 100 calls at once each runs or is refused, and all processes end", async () => {
    const pool = createPool({ maxProcesses: 2, maxWaitMs: 1_000 });
    let most = 0;
    const calls = Array.from({ length: 100 }, async (_, index) => {
      const { end, run, errors } = createRuns(pool);
      const { output } = await run(`print(${index})`);
      most = Math.max(most, pool.size);
      end();
      return { index, output: output.trim(), errors };
    });
    const outcomes = await Promise.all(calls);
    const busy = "All Python interpreters are busy. Try again later.";
    for (const { index, output, errors } of outcomes) {
      expect([String(index), busy]).toContain(output);
      expect(errors).toEqual([]);
    }
    expect(outcomes.filter(({ output }) => output !== busy).length).toBeGreaterThanOrEqual(2);
    // 98 find no place, and of those no more than 64 may wait.
    expect(outcomes.filter(({ output }) => output === busy).length).toBeGreaterThanOrEqual(34);
    expect(most).toBe(2);
    pool.close();
    await until("all processes to be gone", () => pool.size === 0);
  }, 60_000);

  test("that stand idle are taken from their responses where others wait", async () => {
    const pool = createPool({ maxProcesses: 1 });
    const one = createRuns(pool);
    await one.run("x = 1");
    const other = createRuns(pool);
    expect((await other.run("print(2)")).output.trim()).toBe("2");
    other.end();
    expect((await one.run('print("x" in globals())')).output).toBe(
      `This is a new Python interpreter. ${LOST}\nFalse\n`,
    );
    pool.close();
  }, 60_000);

  test("end with the gateway, even one that is killed", async () => {
    const gateway = Bun.spawn([process.execPath, join(import.meta.dir, "killed-gateway.ts")], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const reader = gateway.stdout.getReader();
    const pid = Number(new TextDecoder().decode((await reader.read()).value));
    expect(existsSync(`/proc/${pid}`)).toBe(true);
    gateway.kill("SIGKILL");
    await until("the interpreter to be gone", () => !existsSync(`/proc/${pid}`));
  }, 60_000);
});
