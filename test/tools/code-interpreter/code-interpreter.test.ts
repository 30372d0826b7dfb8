import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { zipSync } from "fflate";
import { CodeInterpreter } from "../../../src/inference/tools/code-interpreter/code-interpreter.ts";
import type { FileReader } from "../../../src/inference/tools/code-interpreter/python-session.ts";
import type { RequestedTool, RequestTools } from "../../../src/inference/tools/registry.ts";
import type { ToolOutcome } from "../../../src/inference/tools/tool.ts";
import { GatewayError } from "../../../src/lib/errors.ts";
import type { FileRecord } from "../../../src/lib/file-record.ts";
import { startStopwatch } from "../../support/stopwatch.ts";
import { hasSeccomp, sayWhySkipped } from "./platform.ts";
import { createPool, createRuns, NO_FILES, snapshotFolder } from "./python-runs.ts";

const OUTPUTS = "code_interpreter_call.outputs";
const OPENING = {
  organizationId: "org_1",
  keyId: "key_1",
  requestId: "req_1",
  signal: new AbortController().signal,
};
const scratch = mkdtempSync(join(tmpdir(), "gateway-wheels-"));

/** A dot in red. */
const DOT_CODE = `import struct, zlib
def part(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
with open("dot.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(b"\\0\\xff\\0\\0")) + part(b"IEND", b""))
None`;

function interpreter(files = NO_FILES, wheelFolder?: string): CodeInterpreter {
  return new CodeInterpreter({
    settings: {
      maxProcesses: 2,
      maxRunSeconds: 30,
      maxMemoryBytes: 268_435_456,
      wheelFolder,
    },
    snapshotFolder,
    files,
    onError: () => {},
  });
}

function create(factory: CodeInterpreter, members: object = {}, include: string[] = []) {
  const requested = { type: "code_interpreter", ...members } as RequestedTool;
  return factory.create(requested, { param: "tools.0", include: new Set(include) });
}

function run({ tools }: RequestTools, args: string): Promise<ToolOutcome> {
  return tools[0]!.run({ ...OPENING, arguments: args, progress: () => {} });
}

function filesOf(contents: Readonly<Record<string, { name: string; text: string }>>): FileReader {
  return {
    async find(organizationId, fileId) {
      const found = contents[fileId];
      if (organizationId !== "org_1" || found === undefined) {
        throw new GatewayError("file_not_found", "There is no such file.");
      }
      return { id: fileId, filename: found.name, bytes: found.text.length } as FileRecord;
    },
    read: async ({ id }) => new Blob([contents[id]!.text]).stream(),
  };
}

afterAll(() => rmSync(scratch, { recursive: true }));

sayWhySkipped();

test("a gateway that is not to run Python refuses the tool, and says which setting is missing", () => {
  const factory = new CodeInterpreter({
    settings: undefined,
    snapshotFolder,
    files: NO_FILES,
    onError: () => {},
  });
  expect(() => create(factory)).toThrow("GATEWAY_CODE_INTERPRETER");
});

test("options that the gateway lacks are refused by name", () => {
  const factory = interpreter();
  const refused: readonly (readonly [object, string])[] = [
    [{ container: "cntr_123" }, "tools.0.container"],
    [{ container: { type: "none" } }, "tools.0.container.type"],
    [{ container: { type: "auto", memory_limit: "64g" } }, "tools.0.container.memory_limit"],
    [{ container: { type: "auto", file_ids: "file_1" } }, "tools.0.container.file_ids"],
    [{ container: { type: "auto", file_ids: Array(21).fill("f") } }, "tools.0.container.file_ids"],
    [{ unknown: 1 }, "tools.0.unknown"],
  ];
  for (const [members, param] of refused) {
    let thrown: unknown;
    try {
      create(factory, members);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(GatewayError);
    expect((thrown as GatewayError).param).toBe(param);
  }
  expect(create(factory, { container: { type: "auto", file_ids: null } }).tools).toHaveLength(1);
});

test("files that the organization lacks, or too large ones, fail the request before anything runs", async () => {
  const large = { id: "file_2", filename: "large", bytes: 33_554_433 } as FileRecord;
  const files = filesOf({});
  const missing = create(interpreter(files), { container: { type: "auto", file_ids: ["file_1"] } });
  await expect(missing.open!(OPENING)).rejects.toThrow("There is no such file.");
  const tooLarge = create(interpreter({ ...files, find: async () => large }), {
    container: { type: "auto", file_ids: ["file_2"] },
  });
  await expect(tooLarge.open!(OPENING)).rejects.toThrow("more than 32 MB");
});

test("arguments that are no code are answered without a process", async () => {
  const factory = interpreter();
  for (const args of ["", "null", "[]", "print(1)", '{"code": 1}', '{"code": "', "[".repeat(1e6)]) {
    const outcome = await run(create(factory), args);
    expect(outcome.isFailed).toBe(true);
    expect(outcome.output).toContain('{"code": "…"}');
  }
});

describe.skipIf(!hasSeccomp)("a response's interpreter", () => {
  test("runs cells one after the other as a notebook does, and shows them as OpenAI's items", async () => {
    const factory = interpreter();
    const made = create(factory, {}, [OUTPUTS]);
    const code = "total = 40\nprint('begun')\ntotal + 2";
    const [first, second] = await Promise.all([
      run(made, JSON.stringify({ code })),
      run(made, JSON.stringify({ code: "total / 0" })),
    ]);
    const [tool] = made.tools;
    const opening = tool!.opening!(JSON.stringify({ code }));
    expect(opening).toEqual({ code, container_id: expect.any(String), outputs: null });
    expect(first).toEqual({
      output: "begun\n42\n",
      item: {
        ...opening,
        type: "code_interpreter_call",
        outputs: [{ type: "logs", logs: "begun\n42\n" }],
      },
      images: [],
      isFailed: false,
    });
    expect(second.output).toBe(
      'Traceback (most recent call last):\n  File "<cell 2>", line 1, in <module>\n    total / 0\n    ~~~~~~^~~\nZeroDivisionError: division by zero\n',
    );
    expect(second.isFailed).toBe(false);
    factory.close();
  }, 60_000);

  test("gives pictures as data URLs, to the model and to callers that want outputs", async () => {
    const factory = interpreter();
    const made = create(factory, {}, [OUTPUTS]);
    const { images, item, output } = await run(made, JSON.stringify({ code: DOT_CODE }));
    expect(images).toEqual([expect.stringMatching(/^data:image\/png;base64,iVBORw0KGgo/)]);
    expect(output).toBe("[picture: dot.png]");
    expect(item.outputs).toEqual([
      { type: "logs", logs: "[picture: dot.png]" },
      { type: "image", url: images![0] },
    ]);
    const code = 'open("b.png", "w").write("x"); open("c.png", "w").write("<svg/>"); None';
    const broken = await run(made, JSON.stringify({ code }));
    expect([broken.output, broken.images]).toEqual([
      "[b.png is not an image]\n[c.png is not an image]",
      [],
    ]);
    const silent = create(factory);
    const outcome = await run(silent, JSON.stringify({ code: DOT_CODE }));
    expect([outcome.item.outputs, outcome.images?.length]).toEqual([null, 1]);
    factory.close();
  }, 60_000);

  test("has the given files in its folder, under names that are no paths", async () => {
    const files = filesOf({
      a: { name: "table.csv", text: "n\n1\n2\n" },
      b: { name: "../../etc/table.csv", text: "other" },
      c: { name: "table.csv", text: "third" },
    });
    const factory = interpreter(files);
    const made = create(factory, { container: { type: "auto", file_ids: ["a", "b", "c"] } });
    await made.open!(OPENING);
    const code =
      'import os; print(sorted(os.listdir()), open("table.csv").read(), open("2-table.csv").read())';
    const { output } = await run(made, JSON.stringify({ code }));
    expect(output).toBe("['2-table.csv', '__.._etc_table.csv', 'table.csv'] n\n1\n2\n third\n");
    factory.close();
  }, 60_000);

  test("has the packages of the operator's folder of wheels, and its description names them", async () => {
    const metadata = "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n";
    const wheel = zipSync({
      "greeting.py": Buffer.from('WORDS = "hello from a wheel"\n'),
      "greeting-1.0.dist-info/METADATA": Buffer.from(metadata),
      "greeting-1.0.dist-info/WHEEL": Buffer.from("Wheel-Version: 1.0\nTag: py3-none-any\n"),
      "greeting-1.0.dist-info/RECORD": new Uint8Array(),
    });
    writeFileSync(join(scratch, "greeting-1.0-py3-none-any.whl"), wheel);
    const factory = interpreter(NO_FILES, scratch);
    const made = create(factory);
    expect(made.tools[0]!.description).toContain("these packages are installed: greeting 1.0.");
    expect(create(interpreter()).tools[0]!.description).toContain("no numpy");
    const { output } = await run(made, '{"code": "import greeting; greeting.WORDS"}');
    expect(output).toBe("'hello from a wheel'\n");
    factory.close();
  }, 60_000);

  test("shows the figures that matplotlib has open after a run, and closes them", async () => {
    const pool = createPool();
    const { run } = createRuns(pool);
    // The wheel of matplotlib comes from no registry, so this has the three functions that are called of it.
    const { output, images } = await run(`import sys, types
plots = types.ModuleType("matplotlib.pyplot")
figures = {1: "dot.png"}
class Figure:
    def savefig(self, path):
        import shutil
        shutil.copyfile("dot.png", path)
plots.get_fignums = lambda: list(figures)
plots.figure = lambda number: Figure()
plots.close = lambda which: figures.clear()
sys.modules["matplotlib.pyplot"] = plots
${DOT_CODE}`);
    expect(output).toBe("[picture: dot.png]\n[picture: figure-1-1.png]");
    expect(images).toHaveLength(2);
    expect((await run("figures")).output).toBe("{}\n");
    pool.close();
  }, 60_000);

  test("is refused where its process does not come as far as its lock-down, and nothing runs", async () => {
    const pool = createPool({ snapshotFolder: null, wheelFolder: join(scratch, "missing") });
    const { run, errors } = createRuns(pool);
    const { output, isFailed } = await run("print('ran')");
    expect([output, isFailed]).toEqual(["Python cannot run on this server.", true]);
    expect(String(errors[0])).toContain("Python did not start");
    // Not tried again at once.
    const elapsedMs = startStopwatch();
    expect((await run("print('ran')")).isFailed).toBe(true);
    expect(elapsedMs()).toBeLessThan(500);
    pool.close();
  }, 60_000);
});
