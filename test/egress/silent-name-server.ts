import { createSocket } from "node:dgram";
import { getServers, setServers } from "node:dns";

const HEADER_BYTES = 12;
const TYPE_A = 1;

/** The only name server while it runs: it knows one name, and keeps silent about all others. */
export async function startSilentNameServer(known: { readonly name: string; readonly ip: string }) {
  const socket = createSocket("udp4");
  const held: (() => void)[] = [];
  let isOver = false;
  socket.on("message", (query, from) => {
    const { name, type, end } = readQuestion(query);
    const reply = (code: number, answers: readonly Buffer[]): void => {
      const header = Buffer.from([query[0]!, query[1]!, 0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
      header[7] = answers.length;
      const question = query.subarray(HEADER_BYTES, end);
      socket.send(Buffer.concat([header, question, ...answers]), from.port, from.address);
    };
    if (name === known.name) reply(0, type === TYPE_A ? [addressRecord(known.ip)] : []);
    else if (isOver) reply(3, []);
    else held.push(() => reply(3, []));
  });
  await new Promise<void>((resolve) => socket.bind(0, "127.0.0.1", resolve));
  const usual = getServers();
  setServers([`127.0.0.1:${socket.address().port}`]);
  return {
    get heldQueries() {
      return held.length;
    },
    /** Says of every name that there is none: whoever waits is told. */
    breakSilence(): void {
      isOver = true;
      for (const tell of held.splice(0)) tell();
    },
    stop(): void {
      setServers(usual);
      socket.close();
    },
  };
}

function readQuestion(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  while (query[at] !== 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + query[at]!));
    at += query[at]! + 1;
  }
  return { name: labels.join("."), type: query.readUInt16BE(at + 1), end: at + 5 };
}

/** The name of the question, class IN, a second to live (RFC 1035, section 4.1.3). */
function addressRecord(ip: string): Buffer {
  const address = ip.split(".").map(Number);
  return Buffer.from([0xc0, HEADER_BYTES, 0, TYPE_A, 0, 1, 0, 0, 0, 1, 0, 4, ...address]);
}
