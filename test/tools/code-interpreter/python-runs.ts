import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type PoolBounds,
  PythonPool,
} from "../../../src/inference/tools/code-interpreter/python-pool.ts";
import {
  type FileReader,
  PythonSession,
} from "../../../src/inference/tools/code-interpreter/python-session.ts";
import type { ToolOutcome } from "../../../src/inference/tools/tool.ts";

/** Kept from run to run of the tests: the first start of Python takes seconds. */
export const snapshotFolder = join(tmpdir(), `gateway-test-python-${process.getuid?.()}`);
mkdirSync(snapshotFolder, { recursive: true, mode: 0o700 });

export const NO_FILES: FileReader = {
  find: () => Promise.reject(new Error("no file was asked for")),
  read: () => Promise.reject(new Error("no file was asked for")),
};

export function createPool(bounds: Partial<PoolBounds> = {}): PythonPool {
  return new PythonPool({
    maxProcesses: 2,
    maxRunMs: 60_000,
    maxPythonBytes: 268_435_456,
    wheelFolder: null,
    snapshotFolder,
    ...bounds,
  });
}

export interface Runs {
  readonly errors: unknown[];
  run(code: string, signal?: AbortSignal): Promise<ToolOutcome>;
  /** The response is over. */
  end(): void;
}

export function createRuns(
  pool: PythonPool,
  given: { readonly files?: FileReader; readonly fileIds?: readonly string[] } = {},
): Runs {
  const errors: unknown[] = [];
  const session = new PythonSession({
    pool,
    files: given.files ?? NO_FILES,
    fileIds: given.fileIds ?? [],
    containerId: "cntr_1",
    showsOutputs: true,
    maxRunSeconds: 60,
    onError: (error) => errors.push(error),
  });
  return {
    errors,
    end: () => session.close(),
    run: (code, signal = new AbortController().signal) =>
      session.run({
        arguments: JSON.stringify({ code }),
        organizationId: "org_1",
        keyId: "key_1",
        requestId: "req_1",
        signal,
        progress: () => {},
      }),
  };
}
