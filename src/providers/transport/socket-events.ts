/** A socket whose events go to its `data`, which changes hands when the connection stands. */
export type ClientSocket = Bun.Socket<SocketEvents>;

/** What happens on a socket, told to its present owner. */
export interface SocketEvents {
  opened(socket: ClientSocket): void;
  /** TLS stands, or was refused; a second time where the server renegotiates. */
  handshaken(socket: ClientSocket, isTrusted: boolean, error: Error | null): void;
  received(data: Buffer): void;
  drained(): void;
  /** The connection has ended, in the ordinary way or with an error; may be reported more than once. */
  ended(error: unknown): void;
}

/** Opens a connection and reports to the handlers; a rejection repeats what they received. */
export type Connect = (options: Bun.TCPSocketConnectOptions<SocketEvents>) => Promise<unknown>;

export const SOCKET_HANDLERS: Bun.SocketHandler<SocketEvents> = {
  open: (socket) => socket.data.opened(socket),
  handshake: (socket, isTrusted, error) => socket.data.handshaken(socket, isTrusted, error),
  data: (socket, data) => socket.data.received(data),
  drain: (socket) => socket.data.drained(),
  end: (socket) => socket.data.ended(undefined),
  close: (socket, error) => socket.data.ended(error),
  error: (socket, error) => socket.data.ended(error),
  connectError: (socket, error) => socket.data.ended(error),
};

/** Owns a socket that TLS has taken over: its encrypted bytes are reported here as well. */
export const IGNORED_EVENTS: SocketEvents = {
  opened: () => undefined,
  handshaken: () => undefined,
  received: () => undefined,
  drained: () => undefined,
  ended: () => undefined,
};
