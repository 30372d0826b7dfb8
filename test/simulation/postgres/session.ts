import { ABORTED_TRANSACTION, DEADLOCK, LOCK_TIMEOUT, ModelledError } from "./errors.ts";
import { circleOf } from "./row-locks.ts";
import type { ModelledServer } from "./server.ts";
import { A_MOMENT, type LockRequest, type Running, Transaction } from "./transaction.ts";

/** Rows as the driver returns them, with how many a statement has written. */
export interface Outcome {
  readonly rows: readonly unknown[];
  readonly count: number;
}

export interface Statement {
  readonly name: string;
  /** A batch of the ledger: what it does is one transaction on its own, and locks what it needs in order. */
  readonly isLedgerBatch?: boolean;
  /** The server may refuse it although nothing is wrong with it. */
  readonly isRefusable?: boolean;
  run(session: Session, transaction: Transaction): Running<Outcome>;
}

export interface Request {
  readonly kind: "statement" | "begin" | "commit" | "rollback";
  readonly statement?: Statement;
  reply(outcome: Outcome | ModelledError): void;
}

export interface SessionSettings {
  readonly lockTimeoutMs: number | undefined;
  readonly idleInTransactionMs: number | undefined;
}

const DEADLOCK_TIMEOUT_MS = 1_000;
const NOTHING: Outcome = { rows: [], count: 0 };

/**
 * One session of the server: it carries out what it is sent, one after another. A session whose client is
 * gone learns of it when it has carried out what it is at, a commit of its own included.
 */
export class Session {
  readonly pid: number;
  readonly name: string;
  readonly advisoryLocks = new Map<string, "alone" | "shared">();
  readonly settings: SessionSettings;
  isClosed = false;
  readonly #server: ModelledServer;
  readonly #onClosed: () => void;
  readonly #inbox: Request[] = [];
  #isBusy = false;
  #isCommitting = false;
  #isClientGone = false;
  #isTerminated = false;
  /** Of an explicit transaction, or of the statement that is being carried out. */
  #transaction: Transaction | undefined;
  #isExplicit = false;
  #hasFailed = false;
  #endIdling = (): void => {};

  constructor(
    server: ModelledServer,
    name: string,
    settings: SessionSettings,
    onClosed: () => void,
  ) {
    this.#server = server;
    this.pid = server.world.nextId();
    this.name = name;
    this.settings = settings;
    this.#onClosed = onClosed;
  }

  receive(request: Request): void {
    if (this.isClosed) return;
    this.#inbox.push(request);
    this.#next();
  }

  clientGone(): void {
    this.#isClientGone = true;
    if (!this.#isBusy) this.#close();
  }

  /** As pg_terminate_backend: a commit that is under way is not interrupted. */
  terminate(): void {
    this.#isTerminated = true;
    if (!this.#isCommitting) this.#close();
  }

  /** The server is gone; a commit may just have come true. */
  crash(): void {
    if (this.#isCommitting && this.#server.world.random.chance(0.5)) this.#commit();
    this.#close();
  }

  /** Sessions of that name other than this one, which are asked to end. */
  endOthersNamed(name: string): Session[] {
    const others = [...this.#server.sessions].filter((one) => one !== this && one.name === name);
    for (const other of others) other.terminate();
    return others;
  }

  /** An advisory lock of this session, which is given up with it. */
  tryAdvisoryLock(lock: string, mode: "alone" | "shared"): boolean {
    for (const other of this.#server.sessions) {
      const held = other === this ? undefined : other.advisoryLocks.get(lock);
      if (held !== undefined && (held === "alone" || mode === "alone")) return false;
    }
    this.advisoryLocks.set(lock, mode);
    return true;
  }

  #next(): void {
    if (this.#isBusy || this.isClosed) return;
    if (this.#isClientGone || this.#isTerminated) {
      this.#close();
      return;
    }
    const request = this.#inbox.shift();
    if (request === undefined) {
      this.#idle();
      return;
    }
    this.#isBusy = true;
    this.#endIdling();
    const { kind, statement } = request;
    this.#later(this.#server.workMs(), statement?.name ?? kind, () => {
      if (kind === "begin") this.#begin(request);
      else if (kind === "commit") this.#finish(request, NOTHING, true);
      else if (kind === "rollback") this.#rollBack(request);
      else this.#carryOut(request);
    });
  }

  #begin(request: Request): void {
    this.#transaction = new Transaction();
    this.#isExplicit = true;
    this.#hasFailed = false;
    this.#answer(request, NOTHING);
  }

  #rollBack(request: Request): void {
    this.#undo();
    this.#answer(request, NOTHING);
  }

  #carryOut(request: Request): void {
    if (this.#isExplicit && this.#hasFailed) {
      this.#answer(request, new ModelledError(ABORTED_TRANSACTION, "transaction failed"));
      return;
    }
    this.#transaction ??= new Transaction();
    const transaction = this.#transaction;
    transaction.isLedgerBatch = request.statement!.isLedgerBatch === true && !this.#isExplicit;
    const refusal = this.#server.refusalOf(request.statement!);
    if (refusal !== undefined) {
      this.#fail(request, refusal);
      return;
    }
    this.#advance(request, request.statement!.run(this, transaction));
  }

  #advance(request: Request, running: Running<Outcome>): void {
    let step: IteratorResult<LockRequest | typeof A_MOMENT, Outcome>;
    try {
      step = running.next();
    } catch (error) {
      if (!(error instanceof ModelledError)) this.#server.onFault(error);
      this.#fail(request, error as ModelledError);
      return;
    }
    if (step.done) {
      this.#finish(request, step.value, !this.#isExplicit);
      return;
    }
    if (step.value === A_MOMENT) {
      this.#later(this.#server.workMs(), "goes on", () => this.#advance(request, running));
      return;
    }
    this.#wait(request, running, step.value);
  }

  #wait(request: Request, running: Running<Outcome>, { lock, mode }: LockRequest): void {
    const transaction = this.#transaction!;
    let isOver = false;
    const give = (code: string, text: string) => () => {
      if (isOver || this.isClosed) return;
      if (code === DEADLOCK && circleOf(transaction).length === 0) return;
      isOver = true;
      lock.giveUp(transaction);
      this.#fail(request, new ModelledError(code, text));
    };
    lock.wait({
      transaction,
      mode,
      granted: () => {
        if (isOver) return;
        isOver = true;
        this.#later(0, "lock", () => this.#advance(request, running));
      },
    });
    const circle = circleOf(transaction);
    if (circle.length > 0) this.#server.onDeadlock(circle);
    this.#later(DEADLOCK_TIMEOUT_MS, "deadlock check", give(DEADLOCK, "deadlock detected"));
    const { lockTimeoutMs } = this.settings;
    if (lockTimeoutMs !== undefined) {
      this.#later(lockTimeoutMs, "lock timeout", give(LOCK_TIMEOUT, "lock timeout"));
    }
  }

  #fail(request: Request, error: ModelledError): void {
    this.#transaction?.rollBack();
    this.#hasFailed = true;
    if (!this.#isExplicit) this.#transaction = undefined;
    this.#answer(request, error);
  }

  #finish(request: Request, outcome: Outcome, commits: boolean): void {
    if (!commits) {
      this.#answer(request, outcome);
      return;
    }
    if (this.#isExplicit && this.#hasFailed) {
      this.#rollBack(request);
      return;
    }
    if (this.#transaction!.changed.size === 0) {
      this.#commit();
      this.#answer(request, outcome);
      return;
    }
    this.#isCommitting = true;
    this.#later(this.#server.commitMs(), "commit", () => {
      this.#isCommitting = false;
      this.#commit();
      this.#answer(request, outcome);
    });
  }

  #commit(): void {
    const transaction = this.#transaction!;
    this.#transaction = undefined;
    this.#isExplicit = false;
    this.#server.commit(transaction);
  }

  #undo(): void {
    const transaction = this.#transaction;
    this.#transaction = undefined;
    this.#isExplicit = false;
    this.#isCommitting = false;
    transaction?.waitsFor?.giveUp(transaction);
    transaction?.rollBack();
  }

  #answer(request: Request, outcome: Outcome | ModelledError): void {
    this.#isBusy = false;
    request.reply(outcome);
    this.#next();
  }

  #idle(): void {
    const { idleInTransactionMs } = this.settings;
    if (!this.#isExplicit || idleInTransactionMs === undefined) return;
    this.#endIdling = this.#later(idleInTransactionMs, "idle in transaction", () => this.#close());
  }

  #close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#undo();
    this.#server.forget(this);
    this.#onClosed();
  }

  #later(delayMs: number, label: string, run: () => void): () => void {
    return this.#server.world.after(delayMs, `db ${this.name} ${label}`, () => {
      if (!this.isClosed) run();
    });
  }
}
