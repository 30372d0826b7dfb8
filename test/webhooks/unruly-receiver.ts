import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";

export type Fault = "500" | "429" | "reset" | "hang";

/** What a receiver saw, as far as the promises of deliveries go. */
export interface UnrulyReceiver {
  readonly url: string;
  readonly secret: string;
  /** Numbers of the events, each once, in the order in which they first came. */
  readonly firsts: readonly number[];
  /** Of those that it answered 2xx. */
  readonly accepted: ReadonlySet<number>;
  readonly requests: number;
  /** Requests for what it had accepted before. */
  readonly duplicates: number;
  readonly badSignatures: number;
  stop(): Promise<void>;
}

/** Fewer than would disable a webhook, whatever owners forget of them. */
const MAX_FAULTS_AN_EVENT = 4;

/** A receiver that fails at random, the same event a few times at most. */
export async function startUnrulyReceiver(pick: () => Fault | undefined): Promise<UnrulyReceiver> {
  const secret = `whsec_${crypto.randomUUID()}`;
  const firsts: number[] = [];
  const seen = new Set<number>();
  const accepted = new Set<number>();
  const faults = new Map<number, number>();
  const sockets = new Set<Socket>();
  let requests = 0;
  let badSignatures = 0;
  let duplicates = 0;
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("error", () => {});
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const body = Buffer.concat(pieces).toString();
      requests++;
      if (!isSigned(String(request.headers["gateway-webhook-signature"]), body, secret))
        badSignatures++;
      const { number } = (JSON.parse(body) as { data: { number: number } }).data;
      if (!seen.has(number)) {
        seen.add(number);
        firsts.push(number);
      }
      const fault = (faults.get(number) ?? 0) < MAX_FAULTS_AN_EVENT ? pick() : undefined;
      if (fault !== undefined) faults.set(number, (faults.get(number) ?? 0) + 1);
      if (fault === "hang") return;
      if (fault === "reset") {
        request.socket.destroy();
        return;
      }
      if (accepted.has(number)) duplicates++;
      if (fault === undefined) accepted.add(number);
      response.writeHead(fault === undefined ? 200 : Number(fault)).end();
    });
  });
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    secret,
    firsts,
    accepted,
    get requests() {
      return requests;
    },
    get duplicates() {
      return duplicates;
    },
    get badSignatures() {
      return badSignatures;
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function isSigned(header: string, body: string, secret: string): boolean {
  const [timestamp, signature] = header.split(",");
  const signed = `${timestamp?.slice(2)}.${body}`;
  return signature === `v1=${createHmac("sha256", secret).update(signed).digest("hex")}`;
}
