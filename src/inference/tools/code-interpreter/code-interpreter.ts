import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { GatewayError } from "../../../lib/errors.ts";
import { newId } from "../../../lib/ids.ts";
import type {
  RequestedTool,
  RequestTools,
  ToolContext,
  ToolFactory,
  ToolOpening,
} from "../registry.ts";
import type { GatewayTool } from "../tool.ts";
import { PythonPool } from "./python-pool.ts";
import { MAX_GIVEN_BYTES } from "./python-process.ts";
import { codeOf, type FileReader, ITEM_TYPE, PythonSession } from "./python-session.ts";
import { WORK_FOLDER } from "./python-text.ts";

export interface CodeInterpreterSettings {
  readonly maxProcesses: number;
  readonly maxRunSeconds: number;
  readonly maxMemoryBytes: number;
  /** Folder of wheels that Python can import in addition to its standard library. */
  readonly wheelFolder: string | undefined;
}

export interface CodeInterpreterDependencies {
  /** Settings of the interpreter. Undefined if the gateway does not run Python. */
  readonly settings: CodeInterpreterSettings | undefined;
  readonly snapshotFolder: string;
  readonly files: FileReader;
  onError(error: unknown): void;
}

const MAX_FILES = 20;

/** The tool that runs Python for models, in processes without access to files or the network. */
export class CodeInterpreter implements ToolFactory {
  readonly types = ["code_interpreter"];
  readonly #dependencies: CodeInterpreterDependencies;
  readonly #pool: PythonPool | undefined;
  readonly #description: string;

  /** Throws if the folder of wheels cannot be read. */
  constructor(dependencies: CodeInterpreterDependencies) {
    this.#dependencies = dependencies;
    const { settings, snapshotFolder } = dependencies;
    this.#description = settings === undefined ? "" : descriptionOf(settings);
    if (settings === undefined) return;
    const { maxProcesses, maxRunSeconds, maxMemoryBytes, wheelFolder } = settings;
    this.#pool = new PythonPool({
      maxProcesses,
      maxRunMs: maxRunSeconds * 1_000,
      maxPythonBytes: maxMemoryBytes,
      wheelFolder: wheelFolder === undefined ? null : resolve(wheelFolder),
      snapshotFolder: resolve(snapshotFolder),
    });
  }

  get isSet(): boolean {
    return this.#pool !== undefined;
  }

  create(requested: RequestedTool, context: ToolContext): RequestTools {
    const { settings, files, onError } = this.#dependencies;
    if (settings === undefined || this.#pool === undefined) {
      throw unsupported(
        `${context.param}.type`,
        "this gateway does not run Python (GATEWAY_CODE_INTERPRETER is not on)",
      );
    }
    const fileIds = fileIdsOf(requested, context.param);
    const containerId = newId("cntr");
    const session = new PythonSession({
      pool: this.#pool,
      files,
      fileIds,
      containerId,
      showsOutputs: context.include.has("code_interpreter_call.outputs"),
      maxRunSeconds: settings.maxRunSeconds,
      onError,
    });
    const tool: GatewayTool = {
      name: "code_interpreter",
      description: this.#description,
      parameters: PARAMETERS,
      itemType: ITEM_TYPE,
      keepsState: true,
      quantitiesBound: {},
      opening: (json) => ({
        code: codeOf(json) ?? "",
        container_id: containerId,
        outputs: null,
      }),
      run: (call) => session.run(call),
    };
    return {
      tools: [tool],
      open: async (opening) => {
        await assertFiles(files, fileIds, opening, context.param);
        return { tools: [], items: [], close: () => session.close() };
      },
    };
  }

  /** Ends all processes. Current runs fail. */
  close(): void {
    this.#pool?.close();
  }
}

const PARAMETERS = {
  type: "object",
  properties: { code: { type: "string", description: "Python code to run." } },
  required: ["code"],
  additionalProperties: false,
};

function descriptionOf({ wheelFolder, maxRunSeconds }: CodeInterpreterSettings): string {
  const packages = wheelFolder === undefined ? [] : packagesOf(readdirSync(wheelFolder));
  const installed =
    packages.length === 0
      ? "Only the standard library is installed: no numpy, pandas or matplotlib."
      : `Besides the standard library these packages are installed: ${packages.join(", ")}.`;
  return [
    "Runs Python 3 code as a cell of a notebook and answers with what it prints and the value of its last expression.",
    "Variables and files last from one call to the next.",
    `${installed} Nothing else can be installed; there is no network, no subprocess and no thread.`,
    `The user's files are in ${WORK_FOLDER}, which is the working directory.`,
    `Pictures (PNG, JPEG, WebP, GIF) that the code writes there are shown to the user.`,
    `A call can take at most ${maxRunSeconds} seconds. Use \`await\` at the top level in place of asyncio.run.`,
  ].join(" ");
}

/** Returns package names and versions from the names of wheels (PEP 427). */
function packagesOf(names: readonly string[]): string[] {
  return names.flatMap((name) => {
    const [, title, version] = /^([^-]+)-([^-]+)-.*\.whl$/.exec(name) ?? [];
    return title === undefined ? [] : [`${title} ${version}`];
  });
}

/** Returns the ids of the files that Python receives. Throws 400 if the tool has unsupported or invalid members. */
function fileIdsOf(requested: RequestedTool, param: string): readonly string[] {
  const { type: _type, container = { type: "auto" }, ...others } = requested;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw unsupported(`${param}.${unknown}`, "the member is unknown");
  const path = `${param}.container`;
  if (typeof container !== "object" || container === null || Array.isArray(container)) {
    throw unsupported(path, 'only {"type": "auto"} is supported, which exists for one response');
  }
  const { type, file_ids = [], ...rest } = container as Readonly<Record<string, unknown>>;
  if (type !== "auto") throw unsupported(`${path}.type`, 'only "auto" is supported');
  const [further] = Object.keys(rest).filter((name) => rest[name] !== null);
  if (further !== undefined) throw unsupported(`${path}.${further}`, "the gateway sets it itself");
  return distinctIds(file_ids ?? [], `${path}.file_ids`);
}

function distinctIds(value: unknown, param: string): readonly string[] {
  const isList = Array.isArray(value) && value.every((id) => typeof id === "string");
  if (!isList || value.length > MAX_FILES) {
    const message = `${param} must be a list of at most ${MAX_FILES} file ids.`;
    throw new GatewayError("invalid_body", message, { param });
  }
  return [...new Set(value)];
}

/** Throws 404 if the organization does not have one of the files, and 400 if they are too large together. */
async function assertFiles(
  files: FileReader,
  fileIds: readonly string[],
  { organizationId }: ToolOpening,
  param: string,
): Promise<void> {
  let bytes = 0;
  for (const fileId of fileIds) bytes += (await files.find(organizationId, fileId)).bytes;
  if (bytes <= MAX_GIVEN_BYTES) return;
  const most = `${MAX_GIVEN_BYTES / 1_048_576} MB`;
  const path = `${param}.container.file_ids`;
  throw new GatewayError("invalid_body", `The files of ${path} have more than ${most}.`, {
    param: path,
  });
}

function unsupported(param: string, reason: string): GatewayError {
  return new GatewayError("unsupported_parameter", `${param} is not supported: ${reason}.`, {
    param,
  });
}
