import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { PythonPool } from "../../../src/inference/tools/code-interpreter/python-pool.ts";
import { hasSeccomp, sayWhySkipped } from "./platform.ts";
import { createPool, createRuns, type Runs } from "./python-runs.ts";

sayWhySkipped();

describe.skipIf(!hasSeccomp)("a program in Python", () => {
  let pool: PythonPool;
  let runs: Runs;
  let connections = 0;
  let listener: Bun.TCPSocketListener;

  beforeAll(() => {
    pool = createPool();
    runs = createRuns(pool);
    listener = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        open() {
          connections += 1;
        },
        data() {},
      },
    });
  });

  afterAll(() => {
    listener.stop(true);
    pool.close();
  });

  /** What the code prints; the code is to catch what it expects. */
  async function printed(code: string): Promise<string> {
    const { output } = await runs.run(code);
    return output.trim();
  }

  /** The type of the exception with which the statement ends. */
  function faultOf(statement: string): Promise<string> {
    const body = statement.replaceAll("\n", "\n    ");
    return printed(
      `try:\n    ${body}\n    print("done")\nexcept BaseException as error:\n    print(type(error).__name__)`,
    );
  }

  test("sees no file of the machine, and no environment but its own", async () => {
    expect(await faultOf('open("/etc/passwd").read()')).toBe("FileNotFoundError");
    expect(await faultOf('open("/proc/self/environ").read()')).toBe("FileNotFoundError");
    expect(await printed('import os; print(sorted(os.listdir("/")))')).toBe(
      "['dev', 'home', 'lib', 'mnt', 'proc', 'tmp']",
    );
    const environment = await printed(
      "import os, sys; print(dict(os.environ), sys.executable, sys.argv)",
    );
    expect(environment).not.toContain(process.cwd());
    for (const name of ["HOME", "PATH", "DATABASE_URL", "GATEWAY_MASTER_KEY"]) {
      const value = process.env[name];
      if (value !== undefined && value.length > 3) expect(environment).not.toContain(value);
    }
  });

  test("reaches no address and no name", async () => {
    const { port } = listener;
    const request = `import urllib.request; urllib.request.urlopen("http://127.0.0.1:${port}/", timeout=1)`;
    expect(await faultOf(request)).not.toBe("done");
    await printed(
      `import socket\nfor family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):\n    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n        try:\n            one = socket.socket(family, kind)\n            one.settimeout(0.2)\n            one.connect(("127.0.0.1", ${port}))\n            one.send(b"x")\n        except BaseException:\n            pass`,
    );
    expect(
      await faultOf(`import asyncio\nawait asyncio.open_connection("127.0.0.1", ${port})`),
    ).not.toBe("done");
    expect(
      await faultOf(`from pyodide.http import pyfetch\nawait pyfetch("http://127.0.0.1:${port}/")`),
    ).not.toBe("done");
    // Emscripten invents an address for any name, without asking for it.
    expect(
      await printed('import socket; print(socket.getaddrinfo("example.com", 80)[0][4][0])'),
    ).toStartWith("172.29.");
    expect(connections).toBe(0);
  }, 60_000);

  test("starts no process and no thread, and loads no library", async () => {
    for (const statement of [
      'import subprocess; subprocess.run(["ls"])',
      "import os; os.fork()",
      'import os; os.execv("/bin/sh", ["sh"])',
      'import os; os.posix_spawn("/bin/sh", ["sh"], {})',
      "import threading; threading.Thread(target=print).start()",
      "import multiprocessing; multiprocessing.Process(target=print).start()",
      'import ctypes; ctypes.CDLL("libc.so.6")',
      "import os; os.kill(1, 0)",
      'import os; os.mount("a", "b")',
    ]) {
      expect([statement, await faultOf(statement)]).not.toEqual([statement, "done"]);
    }
    expect(await printed('import os; print(os.system("id"))')).not.toContain("uid");
  }, 60_000);

  test("finds no way into JavaScript", async () => {
    for (const statement of [
      "import js",
      "import pyodide_js",
      'from pyodide.code import run_js; run_js("1")',
      'from pyodide.ffi import to_js; to_js([1]).constructor.constructor("return globalThis")()',
      'from pyodide.ffi import to_js; to_js([1]).map.constructor("return globalThis")()',
      'from pyodide.ffi import to_js; to_js({}).constructor.constructor("return process")()',
      "from pyodide.webloop import scheduleCallback; scheduleCallback.constructor('return Bun')()",
    ]) {
      expect([statement, await faultOf(statement)]).not.toEqual([statement, "done"]);
    }
  }, 60_000);

  test("leaves nothing to the interpreter of another response", async () => {
    expect(
      await printed('open("note", "w").write("x"); import sys; sys.secret = 1; secret = 1'),
    ).toBe("Files written: note (1 bytes)");
    const others = createRuns(pool);
    const { output } = await others.run(
      'import os, sys; print(os.listdir(), hasattr(sys, "secret"), "secret" in globals())',
    );
    expect(output.trim()).toBe("[] False False");
    others.end();
  }, 60_000);

  test("draws other random numbers in every interpreter, though all start from one snapshot", async () => {
    const one = await printed("import random; print(random.random())");
    const others = createRuns(pool);
    const { output } = await others.run("import random; print(random.random())");
    expect(Number(output)).not.toBe(Number(one));
    expect(Number(output)).toBeGreaterThan(0);
    others.end();
  }, 60_000);
});
