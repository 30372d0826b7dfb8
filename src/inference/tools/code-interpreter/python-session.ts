import { GatewayError } from "../../../lib/errors.ts";
import type { FileRecord } from "../../../lib/file-record.ts";
import { kindOfImage } from "../../../lib/image-header.ts";
import type { ToolOutcome, ToolRun } from "../tool.ts";
import type { NamedFile } from "./frames.ts";
import type { PythonPool } from "./python-pool.ts";
import {
  MAX_TEXT_BYTES,
  type PythonProcess,
  type PythonRun,
  PythonStartError,
} from "./python-process.ts";

export const ITEM_TYPE = "code_interpreter_call";

/** Reads the files of organizations. */
export interface FileReader {
  /** Returns the file. Throws 404 if the organization does not have it. */
  find(organizationId: string, fileId: string): Promise<FileRecord>;
  /** Returns the bytes. Throws 404 if the file was deleted in the meantime, and 503 if the storage fails. */
  read(file: FileRecord): Promise<ReadableStream<Uint8Array>>;
}

export interface SessionSettings {
  readonly pool: PythonPool;
  readonly files: FileReader;
  readonly fileIds: readonly string[];
  readonly containerId: string;
  /** True if the request shows the outputs of runs in the response, and not only to the model. */
  readonly showsOutputs: boolean;
  readonly maxRunSeconds: number;
  onError(error: unknown): void;
}

/** Image types that models accept. */
const SHOWN_TYPES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);
const MAX_CODE_CHARACTERS = 262_144;
const LOST = "Its variables and the files that it has written are lost.";

/** The runs of one response. They share an interpreter with its variables and files. */
export class PythonSession {
  readonly #settings: SessionSettings;
  #over = new AbortController();
  #process: PythonProcess | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(settings: SessionSettings) {
    this.#settings = settings;
  }

  /** Runs a call. Concurrent calls run one after another. Rejects with the reason of the call's signal. */
  run(call: ToolRun): Promise<ToolOutcome> {
    const outcome = this.#last.then(() => this.#run(call));
    this.#last = outcome.catch(() => {});
    return outcome;
  }

  /** Ends the current run and the interpreter. A later run gets a new interpreter. */
  close(): void {
    this.#over.abort();
    this.#over = new AbortController();
    this.#process?.kill();
    this.#process = undefined;
  }

  async #run(call: ToolRun): Promise<ToolOutcome> {
    const code = codeOf(call.arguments);
    if (code === undefined) {
      const most = `at most ${MAX_CODE_CHARACTERS} characters`;
      return this.#failed("", `The arguments must be {"code": "…"} with ${most} of Python.`);
    }
    const signal = AbortSignal.any([call.signal, this.#over.signal]);
    try {
      call.progress("interpreting");
      const earlier = this.#process;
      const isNew = earlier?.isAlive !== true;
      const files = isNew ? await this.#requestFiles(call.organizationId) : [];
      const process = isNew
        ? await this.#settings.pool.claim(call.organizationId, signal)
        : earlier;
      this.#process = process;
      if (signal.aborted) process.kill();
      const run = await process.run(code, files, signal);
      signal.throwIfAborted();
      const hasLost = isNew && earlier !== undefined;
      const note = hasLost ? `This is a new Python interpreter. ${LOST}\n` : "";
      return this.#outcome(code, note, run);
    } catch (error) {
      signal.throwIfAborted();
      return this.#failed(code, this.#reasonOf(error));
    }
  }

  async #requestFiles(organizationId: string): Promise<NamedFile[]> {
    const result: NamedFile[] = [];
    const { files, fileIds } = this.#settings;
    for (const fileId of fileIds) {
      const file = await files.find(organizationId, fileId);
      const bytes = new Uint8Array(await new Response(await files.read(file)).arrayBuffer());
      result.push({ name: freeName(file.filename, result), bytes });
    }
    return result;
  }

  #outcome(code: string, note: string, run: PythonRun): ToolOutcome {
    const images: string[] = [];
    const lines = [note + run.text];
    if (run.isTextCut) lines.push(`[cut after ${MAX_TEXT_BYTES} bytes of output]`);
    for (const { name, bytes } of run.pictures) {
      const contentType = kindOfImage(bytes)?.contentType;
      if (contentType === undefined || !SHOWN_TYPES.has(contentType))
        lines.push(`[${name} is not an image]`);
      else {
        images.push(`data:${contentType};base64,${Buffer.from(bytes).toString("base64")}`);
        lines.push(`[picture: ${name}]`);
      }
    }
    const end = this.#endOf(run);
    if (end !== undefined) lines.push(`[${end}]`);
    const logs = lines.filter((line) => line !== "").join("\n");
    return {
      output: logs === "" ? "(no output)" : logs,
      item: this.#item(code, logs, images),
      isFailed: end !== undefined,
      images,
    };
  }

  /** Returns the reason for the end of the process, or undefined if it stays alive. */
  #endOf({ end }: PythonRun): string | undefined {
    if (end === "time") return `Ended after ${this.#settings.maxRunSeconds} seconds. ${LOST}`;
    if (end === "memory") return `Ended because it used too much memory. ${LOST}`;
    if (end === "crash" || end === "abort") return `The Python interpreter has ended. ${LOST}`;
    return undefined;
  }

  #failed(code: string, reason: string): ToolOutcome {
    return { output: reason, item: this.#item(code, reason, []), isFailed: true };
  }

  #item(code: string, logs: string, images: readonly string[]): ToolOutcome["item"] {
    const { containerId, showsOutputs } = this.#settings;
    const outputs = [
      ...(logs === "" ? [] : [{ type: "logs", logs }]),
      ...images.map((url) => ({ type: "image", url })),
    ];
    return {
      type: ITEM_TYPE,
      code,
      container_id: containerId,
      outputs: showsOutputs ? outputs : null,
    };
  }

  #reasonOf(error: unknown): string {
    if (error instanceof GatewayError) return error.message;
    this.#settings.onError(error);
    if (error instanceof PythonStartError) return "Python cannot run on this server.";
    return "The Python interpreter has failed.";
  }
}

/** Returns the code of a call, or undefined if the arguments are invalid or the code is too long. */
export function codeOf(json: string): string | undefined {
  if (json.length > 2 * MAX_CODE_CHARACTERS) return undefined;
  try {
    const { code } = JSON.parse(json) as { readonly code?: unknown };
    return typeof code === "string" && code.length <= MAX_CODE_CHARACTERS ? code : undefined;
  } catch {
    return undefined;
  }
}

const MAX_NAME_CHARACTERS = 100;

/** Returns a file name that is not a path and that no other file has. */
function freeName(filename: string, files: readonly NamedFile[]): string {
  const plain = filename.replace(/[^\p{L}\p{N}._ -]/gu, "_").replace(/^\.+/, "_");
  const name = plain.slice(-MAX_NAME_CHARACTERS).toWellFormed() || "file";
  const usedNames = new Set(files.map((file) => file.name));
  for (let count = 2; ; count++) {
    const candidate = count === 2 && !usedNames.has(name) ? name : `${count}-${name}`;
    if (!usedNames.has(candidate)) return candidate;
  }
}
