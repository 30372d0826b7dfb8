import { chmodSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { readPostgresUrl } from "../../db/client.ts";
import { fillDataDir } from "../support/migrated-data-dir.ts";

export interface Owner {
  readonly child: Bun.Subprocess<"ignore", "pipe", "inherit">;
  /** Undefined where the start was refused. */
  readonly url: string | undefined;
  readonly refusal: string | undefined;
}

export interface OwnerOptions {
  readonly transport?: "unix" | "tcp";
  readonly settings?: Record<string, string>;
  /** Another copy of the project to run from. */
  readonly project?: string;
  /** Put before the command, to change the user. */
  readonly prefix?: readonly string[];
}

const PROJECT = join(import.meta.dir, "..", "..");

/** Starts test/embedded/owner.ts in a session of its own and waits for what it says. */
export async function startOwner(dataDir: string, options: OwnerOptions = {}): Promise<Owner> {
  const script = join(options.project ?? PROJECT, "test", "embedded", "owner.ts");
  const args = [dataDir, options.transport ?? "unix", JSON.stringify(options.settings ?? {})];
  const command = [...(options.prefix ?? []), process.execPath, script, ...args];
  const child = Bun.spawn(command, {
    cwd: "/",
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
    detached: true,
  });
  const said = JSON.parse(await firstLine(child.stdout)) as { url?: string; refusal?: string };
  return { child, url: said.url, refusal: said.refusal };
}

export async function firstLine(stream: ReadableStream<Uint8Array>): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  while (!text.includes("\n")) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`the process ended without a word: ${text}`);
    text += decoder.decode(value, { stream: true });
  }
  return text.slice(0, text.indexOf("\n"));
}

export async function stopOwner(owner: Owner): Promise<void> {
  owner.child.kill("SIGTERM");
  await owner.child.exited;
}

export async function killOwner(owner: Owner): Promise<void> {
  owner.child.kill("SIGKILL");
  await owner.child.exited;
}

export function connectTo(url: string | undefined): postgres.Sql {
  if (url === undefined) throw new Error("there is no server to connect to");
  const address = readPostgresUrl(url);
  return postgres(address.url, { path: address.path, max: 1, onnotice: () => {} });
}

/** Runs one query on a connection of its own. */
export async function query(url: string | undefined, text: string): Promise<postgres.Row[]> {
  const sql = connectTo(url);
  try {
    return [...(await sql.unsafe(text))];
  } finally {
    await sql.end({ timeout: 1 });
  }
}

export function serverPid(dataDir: string): number {
  return Number(readFileSync(join(dataDir, "postgres", "postmaster.pid"), "utf8").split("\n")[0]);
}

/** Folders for one test file, which end with what runs on them. */
export function temporaryFolders() {
  const root = mkdtempSync(join(tmpdir(), "gateway-embedded-"));
  // The server may run as another user.
  chmodSync(root, 0o711);
  let count = 0;
  const next = (): string => {
    count += 1;
    return join(root, `data-${count}`);
  };
  return {
    next,
    /** The same with an empty database, for tests that are not about the first start. */
    async nextWithDatabase(): Promise<string> {
      const dataDir = next();
      await fillDataDir(dataDir);
      return dataDir;
    },
    async remove(): Promise<void> {
      for (let number = 1; number <= count; number += 1) {
        endServer(join(root, `data-${number}`));
      }
      rmSync(root, { recursive: true, force: true });
    },
  };
}

function endServer(dataDir: string): void {
  try {
    process.kill(serverPid(dataDir), "SIGQUIT");
  } catch {
    // It had ended.
  }
}
