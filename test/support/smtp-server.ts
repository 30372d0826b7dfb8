import { createServer } from "node:net";

export interface SmtpServer {
  readonly url: string;
  /** The messages that arrived, as their senders wrote them. */
  readonly messages: { readonly to: string; readonly text: string }[];
  stop(): void;
}

/** A mail server that accepts every message. */
export async function startSmtpServer(): Promise<SmtpServer> {
  const messages: SmtpServer["messages"] = [];
  const server = createServer((socket) => {
    let to = "";
    let text: string | undefined;
    let rest = "";
    socket.write("220 test\r\n");
    socket.on("error", () => undefined);
    socket.on("data", (bytes) => {
      const lines = (rest + bytes.toString("utf8")).split("\r\n");
      rest = lines.pop()!;
      for (const line of lines) {
        if (text !== undefined) {
          if (line !== ".") {
            text += `${line}\n`;
            continue;
          }
          messages.push({ to, text: unquoted(text) });
          text = undefined;
          socket.write("250 accepted\r\n");
        } else if (line === "DATA") {
          text = "";
          socket.write("354 go on\r\n");
        } else if (line === "QUIT") {
          socket.end("221 bye\r\n");
        } else {
          if (line.startsWith("RCPT TO:")) to = line.slice(9, -1);
          socket.write("250 ok\r\n");
        }
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  return { url: `smtp://127.0.0.1:${port}`, messages, stop: () => void server.close() };
}

/** Undoes the quoted-printable encoding of a message. */
function unquoted(text: string): string {
  return text
    .replaceAll("=\n", "")
    .replaceAll(/=([0-9A-F]{2})/g, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
}
