import { existsSync, rmSync } from "node:fs";
import { connect } from "node:net";
import postgres from "postgres";
import { readPostgresUrl } from "../client.ts";
import {
  type ServerAddress,
  type ServerSettings,
  SOCKET_PORT,
  serverArguments,
} from "./cluster.ts";
import { EmbeddedPostgresError, type LaunchContext } from "./launch.ts";
import {
  commandLineOf,
  numberTaken,
  type PostmasterRecord,
  postmasterFilePath,
  readPostmasterFile,
  servesCluster,
  waitUntil,
} from "./process-table.ts";
import { type RunningServer, stopServer } from "./server.ts";

/*
 * What a gateway that was killed leaves of its server, judged by the process that postmaster.pid
 * names, while we hold the lock of the data folder:
 *
 *   none        no file, or its process is gone: Postgres clears the file itself at its start
 *   stranger    the number belongs to another process by now, or to one that ended and was never
 *               collected: Postgres would refuse to start, so the file is removed here
 *   hidden      no process to be seen, yet its socket answers (another container): refused
 *   busy        starting, recovering or stopping: waited for
 *   ready       adopted if it runs with the command line that we would use and answers, otherwise
 *               stopped
 */
type Predecessor = "none" | "stranger" | "hidden" | "busy" | "ready";

/** Recovery of a crashed predecessor, as in READY_TIMEOUT_MS of a server of our own. */
const BUSY_TIMEOUT_MS = 600_000;
/** A server that restarts after a crash of one connection still calls itself ready for a moment. */
const ANSWER_TIMEOUT_MS = 5_000;
const SOCKET_TIMEOUT_MS = 2_000;
/** Between the creation of postmaster.pid and its content. */
const EMPTY_FILE_GRACE_MS = 200;
const TAKE_OVER_TIMEOUT_MS = 5_000;

/** Adopts the server that a killed gateway left, or clears the way for a new one (undefined). */
export async function settlePredecessor(
  context: LaunchContext,
  address: ServerAddress,
  settings: ServerSettings,
  urlOf: (server: RunningServer) => string,
): Promise<RunningServer | undefined> {
  const { cluster } = context.folders;
  await waitUntil(() => readPostmasterFile(cluster)?.pid !== 0, EMPTY_FILE_GRACE_MS);
  await waitUntil(async () => (await judge(cluster, address)) !== "busy", BUSY_TIMEOUT_MS);
  const record = readPostmasterFile(cluster);
  switch (await judge(cluster, address)) {
    case "none":
      return undefined;
    case "stranger":
      removeLeftovers(cluster, address);
      return undefined;
    case "hidden":
      throw new EmbeddedPostgresError(
        `a Postgres server that this process cannot see (number ${record?.pid ?? "unknown"}, perhaps in another container) runs on ${cluster}: stop it first`,
      );
    case "busy":
      throw new EmbeddedPostgresError(
        `the Postgres server ${record?.pid} on ${cluster} has been ${record?.status} for ${BUSY_TIMEOUT_MS / 60_000} minutes: see ${context.folders.log}`,
      );
    case "ready":
      return record && (await adoptOrStop(record, context, settings, urlOf));
  }
}

async function judge(clusterDir: string, address: ServerAddress): Promise<Predecessor> {
  const record = readPostmasterFile(clusterDir);
  if (record !== undefined && servesCluster(record.pid, clusterDir)) {
    return record.status === "ready" ? "ready" : "busy";
  }
  if (await socketAnswers(address)) return "hidden";
  if (record === undefined) return "none";
  return record.pid === 0 || numberTaken(record.pid) ? "stranger" : "none";
}

async function adoptOrStop(
  record: PostmasterRecord,
  context: LaunchContext,
  settings: ServerSettings,
  urlOf: (server: RunningServer) => string,
): Promise<RunningServer | undefined> {
  const args = serverArguments(context.folders.cluster, record.address, settings);
  const wanted = [context.binaries.postgres, ...args].join(" ");
  const server = { pid: record.pid, address: record.address };
  const answers = await waitUntil(() => takeOver(urlOf(server)), ANSWER_TIMEOUT_MS);
  if (answers && commandLineOf(record.pid) === wanted) return server;
  await stopServer(record.pid, context, answers ? "fast" : "immediate");
  return undefined;
}

/** Postgres would take them for those of a live server, because a process has the number in them. */
function removeLeftovers(clusterDir: string, address: ServerAddress): void {
  rmSync(postmasterFilePath(clusterDir), { force: true });
  if (address.kind === "tcp") return;
  rmSync(socketPath(address.socketDir), { force: true });
  rmSync(`${socketPath(address.socketDir)}.lock`, { force: true });
}

/**
 * Whether the server answers. Ends the connections of the dead gateway first, so that none of its
 * statements that are still under way takes effect after us: those that wait for a lock until none is
 * left, and only then those that hold one, whose end would let them go on.
 */
async function takeOver(url: string): Promise<boolean> {
  const address = readPostgresUrl(url);
  const sql = postgres(address.url, { path: address.path, max: 1, onnotice: () => {} });
  const othersEnded = async (): Promise<boolean> => {
    const others = await sql`
      WITH others AS MATERIALIZED (
        SELECT pid, wait_event_type IS NOT DISTINCT FROM 'Lock' AS is_waiting FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
      )
      SELECT pg_terminate_backend(pid) FROM others
      WHERE is_waiting OR NOT EXISTS (SELECT 1 FROM others WHERE is_waiting)`;
    return others.length === 0;
  };
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error("no answer")), TAKE_OVER_TIMEOUT_MS);
  try {
    return await Promise.race([waitUntil(othersEnded, TAKE_OVER_TIMEOUT_MS), late]);
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
    await sql.end({ timeout: 0 });
  }
}

async function socketAnswers(address: ServerAddress): Promise<boolean> {
  if (address.kind === "tcp" || !existsSync(socketPath(address.socketDir))) return false;
  const socket = connect(socketPath(address.socketDir));
  try {
    return await new Promise<boolean>((resolve) => {
      socket.once("connect", () => resolve(true));
      socket.once("error", () => resolve(false));
      socket.setTimeout(SOCKET_TIMEOUT_MS, () => resolve(false));
    });
  } finally {
    socket.destroy();
  }
}

function socketPath(socketDir: string): string {
  return `${socketDir}/.s.PGSQL.${SOCKET_PORT}`;
}
