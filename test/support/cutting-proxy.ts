import { connect, createServer, type Socket } from "node:net";

/** What becomes of a message of a client to the server, when it holds a certain text. */
export type Trouble =
  /** It never arrives. */
  | "cut before it arrives"
  /** It arrives, and the server works on it while its client is gone. */
  | "cut while it runs"
  /** The server has done it, and its answer is lost. */
  | "lose its reply";

/** A network between the gateway and Postgres that breaks on command. */
export interface CuttingProxy {
  /** The database, reached through the proxy. */
  readonly url: string;
  /** Connections that were cut. */
  readonly cuts: number;
  /** Connections that were refused while it was broken down. */
  readonly refusals: number;
  /** The next message that holds the text meets this trouble, once. */
  arm(trouble: Trouble, text: string): void;
  disarm(): void;
  /** Cuts every connection; new ones are refused until `restore`. */
  breakDown(): void;
  restore(): void;
  stop(): Promise<void>;
}

/** ReadyForQuery: what the server sends when everything before it is done, committed where it had to be. */
const READY_TAG = 0x5a;
const READY_BYTES = 6;
const SIMPLE_QUERY_TAG = 0x51;
/** What ends the messages of a statement: the server answers it with ReadyForQuery. */
const SYNC = Buffer.from([0x53, 0, 0, 0, 4]);

export async function startCuttingProxy(databaseUrl: string): Promise<CuttingProxy> {
  const target = new URL(databaseUrl);
  const pairs = new Set<{ client: Socket; server: Socket }>();
  let armed: { trouble: Trouble; text: string } | undefined;
  let isBroken = false;
  let cuts = 0;
  let refusals = 0;

  const listener = createServer((client) => {
    if (isBroken) {
      refusals++;
      client.destroy();
      return;
    }
    const server = connect(Number(target.port || 5432), target.hostname);
    const pair = { client, server };
    pairs.add(pair);
    /** The statement whose reply gets lost is being sent, in several parts. */
    let isStatementMarked = false;
    let isReplyLost = false;
    const cut = () => {
      if (!pairs.delete(pair)) return;
      cuts++;
      client.destroy();
      server.destroy();
    };
    const end = () => {
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    client.on("data", (received) => {
      const data = Buffer.from(received);
      const isMet = armed !== undefined && data.includes(armed.text);
      const trouble = isMet ? armed!.trouble : undefined;
      if (isMet) armed = undefined;
      if (trouble === "cut before it arrives") return cut();
      isStatementMarked ||= trouble === "lose its reply";
      if (isStatementMarked && isWholeStatement(data)) isReplyLost = true;
      server.write(data, () => {
        if (trouble === "cut while it runs") cut();
      });
    });
    server.on("data", (data) => {
      if (!isReplyLost) client.write(data);
      else if (isReady(Buffer.from(data))) cut();
    });
    for (const socket of [client, server]) {
      socket.on("error", end);
      socket.on("close", end);
      socket.setNoDelay(true);
    }
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const url = new URL(databaseUrl);
  url.hostname = "127.0.0.1";
  url.port = String((listener.address() as { port: number }).port);

  const cutAll = () => {
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
    arm(trouble, text) {
      armed = { trouble, text };
    },
    disarm() {
      armed = undefined;
    },
    breakDown() {
      isBroken = true;
      cutAll();
    },
    restore() {
      isBroken = false;
    },
    async stop() {
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
