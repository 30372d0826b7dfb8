import { connect } from "node:net";

/** Opens a connection and tells once how it ended; the returned function gives it up. */
export type TcpProbe = (
  target: { readonly host: string; readonly port: number },
  onSettled: (reachable: boolean) => void,
) => () => void;

/** A probe that carries no data: it is closed as soon as it stands. A refusal settles it as well. */
export const openTcpProbe: TcpProbe = (target, onSettled) => {
  const socket = connect({ host: target.host, port: target.port });
  let settled = false;
  const settle = (reachable: boolean) => {
    if (settled) return;
    settled = true;
    socket.destroy();
    onSettled(reachable);
  };
  socket.on("connect", () => settle(true));
  socket.on("error", () => settle(false));
  return () => {
    settled = true;
    socket.destroy();
  };
};

/** Where the connections of a URL go. IPv6 addresses lose their brackets. */
export function tcpTargetOf(url: string): { host: string; port: number } {
  const parsed = new URL(url);
  const host = parsed.hostname.replace(/^\[|\]$/g, "");
  if (parsed.port !== "") return { host, port: Number(parsed.port) };
  return { host, port: parsed.protocol === "https:" ? 443 : 80 };
}
