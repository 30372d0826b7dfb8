import { connect, createServer, type Socket } from "node:net";

/** What becomes of a message of a client to the server, when it holds a certain text. */
export type Trouble =
  /** It never arrives. */
  | "cut before it arrives"
  /** It arrives, and the server works on it while its client is gone. */
  | "cut while it runs"
  /** The server has done it, and its answer is lost. */
  | "lose its reply"
  /** The server has done it; from then on nothing arrives on the connection, as by `swallow`. */
  | "hold its reply";

/** A network between the gateway and Postgres that breaks on command. */
export interface CuttingProxy {
  /** The database, reached through the proxy. */
  readonly url: string;
  /** Connections that were cut. */
  readonly cuts: number;
  /** Connections that were refused while it was broken down. */
  readonly refusals: number;
  /** Connections on which something was swallowed. */
  readonly silenced: number;
  /**
   * The next message that holds the text, on a connection whose name contains `name`, meets this trouble, once.
   * Without a name, on any.
   */
  arm(trouble: Trouble, text: string, name?: string): void;
  disarm(): void;
  /** New connections reach the server after this time, as if it took so long to accept them. */
  delayConnections(delayMs: number): void;
  /** When a client first could use a connection since the last `breakDown`, by `performance.now()`. */
  readonly firstReadyAtMs: number | undefined;
  /** Cuts every connection; new ones are refused until `restore`. */
  breakDown(): void;
  restore(): void;
  /**
   * From now on nothing arrives, in either direction, on connections whose names contain the text, including
   * later ones; no side gets an error. Without a text, on all.
   */
  swallow(name?: string): void;
  /**
   * New connections are whole again. Of the earlier ones those that are kept bring what they had swallowed;
   * the others stay as they are.
   */
  letThrough(earlier: "kept" | "lost"): void;
  stop(): Promise<void>;
}

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
  /** The client's first message, which tells its name. */
  startup: string;
  isSilent: boolean;
  readonly held: (() => void)[];
}

/** ReadyForQuery: what the server sends when everything before it is done, committed where it had to be. */
const READY_TAG = 0x5a;
const READY_BYTES = 6;
const SIMPLE_QUERY_TAG = 0x51;
/** What ends the messages of a statement: the server answers it with ReadyForQuery. */
const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);

export async function startCuttingProxy(databaseUrl: string): Promise<CuttingProxy> {
  const target = new URL(databaseUrl);
  const pairs = new Set<Pair>();
  let swallowed: string | undefined;
  let armed: { trouble: Trouble; text: string; name: string } | undefined;
  let isBroken = false;
  let isStopping = false;
  let cuts = 0;
  let refusals = 0;
  let delayMs = 0;
  let firstReadyAtMs: number | undefined;

  const listener = createServer({ pauseOnConnect: true }, (client) => {
    if (isBroken) {
      refusals++;
      client.destroy();
      return;
    }
    if (delayMs === 0) return forwardAll(client);
    client.on("error", () => {});
    waiting.add(client);
    setTimeout(() => {
      if (waiting.delete(client) && !client.destroyed) forwardAll(client);
    }, delayMs);
  });
  const waiting = new Set<Socket>();
  const forwardAll = (client: Socket): void => {
    const server = connect(Number(target.port || 5432), target.hostname);
    const pair: Pair = { client, server, startup: "", isSilent: false, held: [] };
    pairs.add(pair);
    const forward = (to: Socket, data: Buffer, then?: () => void): void => {
      pair.isSilent ||= swallowed !== undefined && pair.startup.includes(swallowed);
      if (pair.isSilent) pair.held.push(() => to.write(data));
      else to.write(data, then);
    };
    /** The statement whose reply gets lost is being sent, in several parts. */
    let isStatementMarked = false;
    let isReplyLost = false;
    let isReplyHeld = false;
    const cut = () => {
      if (!pairs.delete(pair)) return;
      cuts++;
      client.destroy();
      server.destroy();
    };
    const end = () => {
      // That one side has gone does not arrive either.
      if (pair.isSilent && !isStopping) return;
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    client.on("data", (received) => {
      const data = Buffer.from(received);
      pair.startup ||= data.toString("latin1");
      const isMet =
        armed !== undefined && data.includes(armed.text) && pair.startup.includes(armed.name);
      const trouble = isMet ? armed!.trouble : undefined;
      if (isMet) armed = undefined;
      if (trouble === "cut before it arrives") return cut();
      isReplyHeld ||= trouble === "hold its reply";
      isStatementMarked ||= trouble === "lose its reply" || isReplyHeld;
      const isMarked = isStatementMarked && isWholeStatement(data);
      if (isMarked && !isReplyHeld) isReplyLost = true;
      forward(server, data, () => {
        if (trouble === "cut while it runs") cut();
      });
      if (isMarked && isReplyHeld) {
        pair.isSilent = true;
        isStatementMarked = isReplyHeld = false;
      }
    });
    server.on("data", (data) => {
      if (isReady(Buffer.from(data))) firstReadyAtMs ??= performance.now();
      if (!isReplyLost) forward(client, Buffer.from(data));
      else if (isReady(Buffer.from(data))) cut();
    });
    for (const socket of [client, server]) {
      socket.on("error", end);
      socket.on("close", end);
      socket.setNoDelay(true);
    }
    client.resume();
  };
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const url = new URL(databaseUrl);
  url.hostname = "127.0.0.1";
  url.port = String((listener.address() as { port: number }).port);

  const cutAll = () => {
    firstReadyAtMs = undefined;
    for (const client of waiting) client.destroy();
    waiting.clear();
    for (const { client, server } of [...pairs]) {
      cuts++;
      client.destroy();
      server.destroy();
    }
    pairs.clear();
  };
  return {
    url: url.href,
    get cuts() {
      return cuts;
    },
    get refusals() {
      return refusals;
    },
    get silenced() {
      return [...pairs].filter(({ isSilent }) => isSilent).length;
    },
    arm(trouble, text, name = "") {
      armed = { trouble, text, name };
    },
    disarm() {
      armed = undefined;
    },
    delayConnections(newDelayMs) {
      delayMs = newDelayMs;
    },
    get firstReadyAtMs() {
      return firstReadyAtMs;
    },
    breakDown() {
      isBroken = true;
      cutAll();
    },
    restore() {
      isBroken = false;
    },
    swallow(name = "") {
      swallowed = name;
    },
    letThrough(earlier) {
      swallowed = undefined;
      for (const pair of pairs) {
        if (!pair.isSilent || earlier === "lost") continue;
        pair.isSilent = false;
        for (const bring of pair.held.splice(0)) bring();
      }
    },
    async stop() {
      isStopping = true;
      cutAll();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}

function isWholeStatement(data: Buffer): boolean {
  return data[0] === SIMPLE_QUERY_TAG || data.subarray(-SYNC.length).equals(SYNC);
}

function isReady(data: Buffer): boolean {
  const start = data.length - READY_BYTES;
  return start >= 0 && data[start] === READY_TAG && data.readInt32BE(start + 1) === READY_BYTES - 1;
}
