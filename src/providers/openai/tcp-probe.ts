import { connect, isIP } from "node:net";
import { connect as connectSecurely } from "node:tls";

/** Where connections go. */
export interface TcpTarget {
  readonly host: string;
  readonly port: number;
  /** A connection stands once TLS does. */
  readonly isSecure: boolean;
}

/** Opens a connection and tells once how it ended; the returned function gives it up. */
export type TcpProbe = (target: TcpTarget, onSettled: (reachable: boolean) => void) => () => void;

/** A probe that carries no data: it is closed as soon as it stands. A refusal settles it as well. */
export const openTcpProbe: TcpProbe = ({ host, port, isSecure }, onSettled) => {
  const socket = isSecure
    ? connectSecurely({
        host,
        port,
        ...(isIP(host) === 0 && { servername: host }),
        // Nothing is sent over it: whose certificate it is matters to the call itself.
        rejectUnauthorized: false,
      })
    : connect({ host, port });
  let settled = false;
  const settle = (reachable: boolean) => {
    if (settled) return;
    settled = true;
    socket.destroy();
    onSettled(reachable);
  };
  socket.on(isSecure ? "secureConnect" : "connect", () => settle(true));
  socket.on("error", () => settle(false));
  return () => {
    settled = true;
    socket.destroy();
  };
};

/** Where the connections of a URL go. IPv6 addresses lose their brackets. */
export function tcpTargetOf(url: string): TcpTarget {
  const parsed = new URL(url);
  const host = parsed.hostname.replace(/^\[|\]$/g, "");
  const isSecure = parsed.protocol === "https:";
  const usualPort = isSecure ? 443 : 80;
  return { host, port: parsed.port === "" ? usualPort : Number(parsed.port), isSecure };
}
