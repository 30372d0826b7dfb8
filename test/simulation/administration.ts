import { type CreditEntry, postCredit } from "../../db/ledger/credits.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import { type CreditOrder, insertCreditCommand } from "../../db/queries/credit-commands.ts";
import { changeSubjectBudget } from "../../db/queries/subject-budgets.ts";
import { utcDay, utcMonth } from "../../src/lib/utc-time.ts";
import type { Cluster } from "./cluster.ts";
import { Link } from "./link.ts";
import type { Payers } from "./plan.ts";
import { ModelledDriver } from "./postgres/driver.ts";
import type { ModelContext } from "./postgres/model-context.ts";
import type { ModelledServer } from "./postgres/server.ts";
import { Process } from "./process.ts";
import type { Promises } from "./promises.ts";
import { broken } from "./violation.ts";
import type { World } from "./world.ts";

export interface AdministrationOptions {
  readonly world: World;
  readonly cluster: Cluster;
  readonly promises: Promises;
  readonly server: ModelledServer;
  readonly context: ModelContext;
  readonly payers: Payers;
}

/** Changes keys and balances while requests run: through an instance, or from another process. */
export class Administration {
  readonly #options: AdministrationOptions;
  readonly #process: Process;
  readonly #driver: ModelledDriver;
  #running = 0;
  #acts = 0;
  readonly #credits: string[] = [];

  constructor(options: AdministrationOptions) {
    const { world } = options;
    this.#options = options;
    this.#process = new Process(world, "operator");
    this.#driver = new ModelledDriver({
      ...options,
      link: new Link(world, this.#process),
      poolSize: 1,
      applicationName: "operator",
    });
  }

  get isIdle(): boolean {
    return this.#running === 0 && this.#pendingOrders() === 0;
  }

  act(): void {
    const { random } = this.#options.world;
    const act = random.pick([
      "budget",
      "budget",
      "switch",
      "top-up",
      "order",
      "limit",
      "credit",
      "subject",
    ] as const);
    if (act === "budget" || act === "switch") this.#changeKey(act === "switch");
    else if (act === "credit") this.#creditByInstance();
    else if (act === "subject") this.#changeSubject();
    else this.#changeBalance(act);
  }

  atRest(): void {
    for (const description of this.#credits) {
      if (this.#postedTimes(null, description) > 1) broken("M3", `${description} is posted twice`);
    }
    if (this.#pendingOrders() > 0) broken("M3", "an order was never carried out");
    const done = [...this.#options.context.tables.creditCommands.all()];
    for (const { id, transaction_id: posted } of done) {
      const count = this.#postedTimes(posted, `order ${id}`);
      if (count !== (posted === null ? 0 : 1)) broken("M3", `${id} was carried out ${count} times`);
    }
  }

  /** A change of a key that is acknowledged is durable (output gate). */
  #changeKey(isSwitch: boolean): void {
    const { world, cluster, context, promises, payers } = this.#options;
    const { ready } = cluster;
    if (ready.length === 0) return;
    const gateway = world.random.pick(ready);
    const { id } = world.random.pick(payers.keys);
    const budget = BigInt(world.random.integer(0, 9) * 1_000 + ++this.#acts);
    const changed = isSwitch ? { isActive: world.random.chance(0.7) } : { dailyBudgetNano: budget };
    const eventId = `evt_${world.nextId()}`;
    gateway.process.after(0, `change ${id}`, () => {
      gateway.keys
        .get(id)
        .ask("update", { changed, eventId })
        .then(
          (isChanged) => {
            world.note(`${id} changed`);
            if (!isChanged) return;
            promises.watch(() => {
              const events = [...context.tables.outbox.all()];
              if (!events.some((event) => event.event_id === eventId)) {
                broken("output gate", `the change of ${id} is acknowledged before it is durable`);
              }
            });
          },
          () => {
            // One that was fenced while it asked again cannot know, and ends.
            if (gateway.process.isGone) return;
            promises.watch(() => {
              const events = [...context.tables.outbox.all()];
              if (events.some((event) => event.event_id === eventId)) {
                broken("output gate", `the change of ${id} is told to have failed and is durable`);
              }
            });
          },
        );
    });
  }

  /** A payment that an instance posts with the ledger's statements. */
  #creditByInstance(): void {
    const { world, cluster, payers, promises } = this.#options;
    const { ready } = cluster;
    if (ready.length === 0) return;
    const gateway = world.random.pick(ready);
    const { id: organizationId } = world.random.pick(payers.organizations);
    const description = `credit ${++this.#acts}`;
    const entry: CreditEntry = {
      transactionId: `txn_credit_${this.#acts}`,
      organizationId,
      type: "topup",
      amountNano: BigInt(world.random.integer(1, 3_000)),
      description,
    };
    const effect: StatementEffect = {
      kind: "statement",
      name: "credit",
      tables: ["accounts", "transactions", "changes"],
      events: [],
      run: async (sql) => void (await postCredit(sql, entry)),
    };
    this.#credits.push(description);
    const expectTimes = (times: number) => () =>
      promises.watch(() => {
        const posted = this.#postedTimes(entry.transactionId, description);
        if (posted !== times)
          broken("M3", `${description} is posted ${posted} times, not ${times}`);
      });
    gateway.process.after(0, description, () => {
      gateway.ledger.submit([effect]).then(expectTimes(1), () => {
        if (!gateway.process.isGone) expectTimes(0)();
      });
    });
  }

  /** The budget of an end user, by another process. */
  #changeSubject(): void {
    const { world, payers, context } = this.#options;
    if (payers.subjects.length === 0) return;
    const { id, organizationId } = world.random.pick(payers.subjects);
    const nano = world.random.pick([null, BigInt(world.random.integer(0, 9) * 1_000)]);
    const limits = world.random.pick([{ dailyBudgetNano: nano }, { monthlyBudgetNano: nano }]);
    const nowMs = context.nowMs();
    const periods = { day: utcDay(nowMs).start, monthStart: utcMonth(nowMs).start };
    const place = { organizationId, ...periods };
    this.#byOperator("subject", async () => {
      await changeSubjectBudget(this.#driver.sql, place, id, limits);
    });
  }

  /** From another process: a payment that it posts, or an order that an instance executes. */
  #changeBalance(act: "top-up" | "order" | "limit"): void {
    const { world, payers } = this.#options;
    const { id: organizationId } = world.random.pick(payers.organizations);
    const number = ++this.#acts;
    const { sql } = this.#driver;
    this.#byOperator(act, async () => {
      if (act === "top-up") {
        await postCredit(sql, {
          transactionId: `txn_topup_${number}`,
          organizationId,
          type: "topup",
          amountNano: BigInt(world.random.integer(1, 3_000)),
          description: "Top-up",
        });
        return;
      }
      const id = `cmd_${number}`;
      const order: CreditOrder =
        act === "limit"
          ? {
              kind: "credit-limit",
              id,
              organizationId,
              creditLimitNano: world.random.pick([0n, 0n, 1_000n, 8_000n, null]),
            }
          : {
              kind: "adjustment",
              id,
              organizationId,
              amountNano: BigInt(world.random.integer(-5_000, 2_000)),
              description: `order ${id}`,
            };
      await sql.begin((transaction) => insertCreditCommand(transaction, order));
    });
  }

  #byOperator(act: string, change: () => Promise<void>): void {
    const { promises } = this.#options;
    this.#running++;
    this.#process.after(0, act, () => {
      change()
        .catch((error) => {
          if ((error as { code?: string }).code === undefined) promises.fault(error);
        })
        .finally(() => this.#running--);
    });
  }

  #pendingOrders(): number {
    const { tables } = this.#options.context;
    return [...tables.creditCommands.all()].filter(({ done_at }) => done_at === null).length;
  }

  #postedTimes(transactionId: string | null, description: string): number {
    const { tables } = this.#options.context;
    return [...tables.transactions.all()].filter(
      (row) =>
        row.description === description && (transactionId === null || row.id === transactionId),
    ).length;
  }
}
