import { isIP } from "node:net";
import {
  checkServerIdentity,
  createSecureContext,
  getCACertificates,
  type PeerCertificate,
} from "node:tls";
import type { ProxySettings } from "../../platform/config/outbound-proxies.ts";
import { connectionLost, HttpError, malformed } from "./http-error.ts";
import { parseHead } from "./response-head.ts";

/** Longest response of a proxy before its tunnel is open. */
const MAX_PROXY_HEAD_BYTES = 16_384;
const HEAD_END = "\r\n\r\n";

/** The target of a connection, and the steps before a request can be sent on it. */
export interface DialTarget {
  readonly hostname: string;
  readonly port: number;
  readonly isSecure: boolean;
  /** The proxy gets requests to `http:` URLs directly. For `https:` it is asked for a tunnel. */
  readonly proxy: ProxySettings | undefined;
}

/** Receives the outcome of a dial, once. */
export interface DialListener {
  /** The socket accepts requests. Its events go to its `data`, which the listener sets. */
  ready(socket: ClientSocket): void;
  failed(error: HttpError): void;
}

/**
 * Opens one connection: TCP, then a CONNECT tunnel if an `https:` URL is reached through a proxy (RFC 9110, section
 * 9.3.6), then TLS. The certificate must be issued by a trusted authority and name the host (RFC 9525). Each step
 * begins when the previous one has ended.
 */
export class Dial implements SocketEvents {
  readonly #target: DialTarget;
  readonly #authorities: TrustedAuthorities;
  readonly #listener: DialListener;
  #socket: ClientSocket | undefined;
  #step: "tcp" | "tunnel" | "tls" = "tcp";
  #proxyHead = "";
  #isCancelled = false;
  #hasEnded = false;

  constructor(target: DialTarget, authorities: TrustedAuthorities, listener: DialListener) {
    this.#target = target;
    this.#authorities = authorities;
    this.#listener = listener;
  }

  start(connect: Connect): void {
    const { isSecure, proxy } = this.#target;
    const { hostname, port } = proxy ?? this.#target;
    const options: Bun.TCPSocketConnectOptions<SocketEvents> = {
      hostname,
      port,
      data: this,
      socket: SOCKET_HANDLERS,
    };
    try {
      if (isSecure && proxy === undefined) options.tls = this.#tlsOptions;
      connect(options).catch((error: unknown) => this.ended(error));
    } catch (error) {
      this.#fail(failedSetUp(error));
    }
  }

  /** Cancels the dial. A TCP attempt cannot be cancelled: it fails, or is closed when it is established. */
  cancel(): void {
    this.#isCancelled = true;
    if (this.#socket !== undefined) this.#fail(cancelled());
  }

  opened(socket: ClientSocket): void {
    if (this.#hasEnded) {
      socket.terminate();
      return;
    }
    this.#socket = socket;
    // TLS inside a tunnel opens as a separate socket.
    if (this.#step === "tls") return;
    if (this.#isCancelled) this.#fail(cancelled());
    else if (!this.#target.isSecure) this.#succeed();
    else if (this.#target.proxy === undefined) this.#step = "tls";
    else this.#askForTunnel(this.#target.proxy);
  }

  handshaken(socket: ClientSocket, isTrusted: boolean, error: Error | null): void {
    if (this.#hasEnded) return;
    let refusal: HttpError | undefined;
    try {
      refusal = this.#refusalOf(socket, isTrusted, error ?? undefined);
    } catch (thrown) {
      // Malformed names throw, and nothing catches errors in a socket's handler.
      refusal = refusedCertificate("CERT_UNREADABLE", thrown as Error);
    }
    if (refusal !== undefined) this.#fail(refusal);
    else this.#succeed();
  }

  received(data: Buffer): void {
    if (this.#hasEnded) return;
    if (this.#step === "tunnel") this.#readProxyHead(data);
    else this.#fail(malformed("bytes before the request"));
  }

  drained(): void {}

  ended(error: unknown): void {
    if (this.#hasEnded) return;
    this.#fail(connectionLost(this.#whereItEnded, error));
  }

  get #whereItEnded(): string {
    if (this.#step === "tunnel") return "the proxy ended the connection before the tunnel was open";
    if (this.#step === "tls") return "the connection ended before TLS was established";
    const whose =
      this.#target.proxy === undefined ? "the connection" : "the connection to the proxy";
    return `${whose} could not be opened`;
  }

  get #tlsOptions(): Bun.TLSOptions {
    const { hostname } = this.#target;
    // An IP address is not a server name (RFC 6066, section 3).
    const serverName = isIP(hostname) === 0 ? hostname : "";
    return { ...this.#authorities.tlsOptions, serverName };
  }

  #askForTunnel({ authorization }: ProxySettings): void {
    this.#step = "tunnel";
    const { hostname, port } = this.#target;
    const authority = `${isIP(hostname) === 6 ? `[${hostname}]` : hostname}:${port}`;
    const fields = authorization === undefined ? "" : `proxy-authorization: ${authorization}\r\n`;
    const request = `CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\n${fields}\r\n`;
    if (this.#socket!.write(request) < request.length) {
      this.#fail(new HttpError("CONNECTION_CLOSED", "the proxy accepts no data"));
    }
  }

  #readProxyHead(data: Buffer): void {
    this.#proxyHead += data.toString("latin1");
    const end = this.#proxyHead.indexOf(HEAD_END);
    if (end === -1) {
      if (this.#proxyHead.length > MAX_PROXY_HEAD_BYTES)
        this.#fail(brokenProxy("a head that is too long"));
      return;
    }
    let status: number;
    try {
      ({ status } = parseHead(this.#proxyHead.slice(0, end)));
    } catch (error) {
      this.#fail(brokenProxy((error as Error).message));
      return;
    }
    if (status < 200 || status > 299) {
      this.#fail(refusedTunnel(status));
    } else if (this.#proxyHead.length > end + HEAD_END.length) {
      // In TLS the client sends first, so these bytes are the proxy's.
      this.#fail(brokenProxy("bytes after its response"));
    } else this.#startTls();
  }

  #startTls(): void {
    this.#step = "tls";
    const outer = this.#socket!;
    try {
      const [raw, secure] = outer.upgradeTLS<SocketEvents>({
        data: this,
        tls: this.#tlsOptions,
        socket: SOCKET_HANDLERS,
      });
      outer.data = IGNORED_EVENTS;
      raw.data = IGNORED_EVENTS;
      this.#socket = secure;
    } catch (error) {
      this.#fail(failedSetUp(error));
    }
  }

  #refusalOf(
    socket: ClientSocket,
    isTrusted: boolean,
    error: Error | undefined,
  ): HttpError | undefined {
    if (error !== undefined) {
      const { code } = error as { code?: unknown };
      // System error codes such as EPROTO are one word: no certificate was checked.
      const isConnection = typeof code !== "string" || /^E[A-Z0-9]+$/.test(code);
      if (isConnection) return connectionLost(`TLS could not be set up: ${error.message}`, error);
      return refusedCertificate(code, error);
    }
    if (!isTrusted) return refusedCertificate("CERT_UNTRUSTED", undefined);
    // Bun also compares the name if it has a server name. This check does not rely on that.
    const certificate = socket.getPeerCertificate() as PeerCertificate | undefined;
    if (certificate?.subject === undefined) return refusedCertificate("CERT_MISSING", undefined);
    const mismatch = checkServerIdentity(this.#target.hostname, certificate);
    return mismatch && refusedCertificate("ERR_TLS_CERT_ALTNAME_INVALID", mismatch);
  }

  #succeed(): void {
    this.#hasEnded = true;
    this.#listener.ready(this.#socket!);
  }

  #fail(error: HttpError): void {
    this.#hasEnded = true;
    this.#socket?.terminate();
    this.#listener.failed(error);
  }
}

function cancelled(): HttpError {
  return new HttpError("CANCELLED", "the connection is no longer needed");
}

function failedSetUp(error: unknown): HttpError {
  return connectionLost("TLS could not be set up on this side", error);
}

function refusedCertificate(code: string, cause: Error | undefined): HttpError {
  const why = cause === undefined ? "" : ` (${cause.message})`;
  const message = `the server's certificate is not accepted: ${code}${why}`;
  return new HttpError(code, message, { cause, isLasting: true });
}

function refusedTunnel(status: number): HttpError {
  const message = `the proxy refused the tunnel with status ${status}`;
  // Statuses from 500 on report problems beyond the proxy, the others problems with the request.
  return new HttpError("PROXY_REFUSED", message, { isLasting: status < 500 });
}

function brokenProxy(what: string): HttpError {
  return new HttpError("PROXY_BROKEN", `the proxy answered CONNECT with invalid HTTP: ${what}`);
}

/**
 * The certificate authorities that connections trust, in the form that Bun's sockets take. They are read once, because
 * parsing some hundred certificates costs as much as a handshake.
 */
export class TrustedAuthorities {
  readonly #certificates: readonly string[] | undefined;
  #context: unknown;

  /** @param certificates in PEM, replacing those of the machine */
  constructor(certificates?: readonly string[]) {
    this.#certificates = certificates;
  }

  /**
   * Options for Bun's sockets. `secureContext` is not a documented option; without it all certificates would be
   * rejected.
   */
  get tlsOptions(): Bun.TLSOptions {
    this.#context ??= contextOf(this.#certificates ?? machineAuthorities());
    return { rejectUnauthorized: true, secureContext: this.#context } as Bun.TLSOptions;
  }
}

/** Returns Bun's bundled authorities, those in NODE_EXTRA_CA_CERTS, and those of the operating system. */
function machineAuthorities(): readonly string[] {
  const all = [...getCACertificates("default"), ...getCACertificates("system")];
  return [...new Set(all.map((certificate) => certificate.trim()))];
}

function contextOf(certificates: readonly string[]): unknown {
  return createSecureContext({ ca: [...certificates] }).context;
}

/** A socket whose events go to its `data`. The owner changes when the connection is established. */
export type ClientSocket = Bun.Socket<SocketEvents>;

/** Events of a socket, sent to its current owner. */
export interface SocketEvents {
  opened(socket: ClientSocket): void;
  /** TLS is established or was rejected. Called a second time if the server renegotiates. */
  handshaken(socket: ClientSocket, isTrusted: boolean, error: Error | null): void;
  received(data: Buffer): void;
  drained(): void;
  /** The connection has ended, normally or with an error. Can be reported more than once. */
  ended(error: unknown): void;
}

/** Opens a connection and reports to the handlers. A rejection repeats an error that they received. */
export type Connect = (options: Bun.TCPSocketConnectOptions<SocketEvents>) => Promise<unknown>;

const SOCKET_HANDLERS: Bun.SocketHandler<SocketEvents> = {
  open: (socket) => socket.data.opened(socket),
  handshake: (socket, isTrusted, error) => socket.data.handshaken(socket, isTrusted, error),
  data: (socket, data) => socket.data.received(data),
  drain: (socket) => socket.data.drained(),
  end: (socket) => socket.data.ended(undefined),
  close: (socket, error) => socket.data.ended(error),
  error: (socket, error) => socket.data.ended(error),
  connectError: (socket, error) => socket.data.ended(error),
};

/** Events of a socket that TLS has taken over. Its encrypted bytes are reported here as well. */
const IGNORED_EVENTS: SocketEvents = {
  opened: () => undefined,
  handshaken: () => undefined,
  received: () => undefined,
  drained: () => undefined,
  ended: () => undefined,
};
