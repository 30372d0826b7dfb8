import { Channel, type Link } from "../link.ts";
import { CONNECTION_CLOSED, CONNECTION_REFUSED, ModelledError, STARTING_UP } from "./errors.ts";
import type { ModelledServer } from "./server.ts";
import type { Outcome, Request, Session, SessionSettings } from "./session.ts";

type Reply = (outcome: Outcome | ModelledError) => void;

export interface ConnectionOptions {
  readonly name: string;
  readonly settings: SessionSettings;
  /** Called once, when the client side knows that the connection has ended. */
  onClosed(): void;
}

/** A connection of the driver to a session of the server. */
export class Connection {
  isClosed = false;
  readonly #server: ModelledServer;
  readonly #link: Link;
  readonly #options: ConnectionOptions;
  readonly #toServer: Channel;
  readonly #toClient: Channel;
  readonly #awaited: Reply[] = [];
  #session: Session | undefined;
  #isBroken = false;

  constructor(server: ModelledServer, link: Link, options: ConnectionOptions) {
    this.#server = server;
    this.#link = link;
    this.#options = options;
    this.#toServer = new Channel(link, undefined);
    this.#toClient = new Channel(link, link.process);
    this.#toServer.send("db connect", () => this.#accept());
  }

  /** Requests that are not answered yet. */
  get load(): number {
    return this.#awaited.length;
  }

  /** Sent in order, also before the server has accepted the connection. */
  send(request: Omit<Request, "reply">, reply: Reply): void {
    this.#awaited.push(reply);
    const label = `db send ${request.statement?.name ?? request.kind}`;
    this.#toServer.send(label, () =>
      this.#session?.receive({ ...request, reply: (outcome) => this.#answer(outcome) }),
    );
  }

  /** The connection breaks now: both ends learn of it, each in its time. */
  break(clientDelayMs: number, serverDelayMs: number): void {
    if (this.#isBroken) return;
    this.#isBroken = true;
    this.#toServer.break();
    this.#toClient.break();
    const session = this.#session;
    this.#server.world.after(serverDelayMs, "db client gone", () => session?.clientGone());
    this.#link.process.after(clientDelayMs, "db connection broken", () => this.#lost());
  }

  #accept(): void {
    if (!this.#server.isUp) {
      const code = this.#server.world.random.chance(0.5) ? CONNECTION_REFUSED : STARTING_UP;
      this.#toClient.send("db refused", () => this.#lost(code));
      return;
    }
    const { name, settings } = this.#options;
    this.#session = this.#server.open(name, settings, () =>
      this.#toClient.send("db closed", () => this.#lost()),
    );
  }

  #answer(outcome: Outcome | ModelledError): void {
    this.#toClient.send("db answer", () => this.#awaited.shift()!(outcome));
  }

  #lost(code = CONNECTION_CLOSED): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#isBroken = true;
    this.#toServer.break();
    this.#toClient.break();
    for (const reply of this.#awaited.splice(0)) {
      reply(new ModelledError(code, "the connection broke"));
    }
    this.#options.onClosed();
  }
}
