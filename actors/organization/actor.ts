import { insertKeyEffect, type NewKey } from "../../db/queries/api-keys.ts";
import {
  type CreditCommand,
  type CreditOrder,
  creditCommandEffect,
  refuseCommandEffect,
  storeOrderEffect,
  withdrawOrderEffect,
} from "../../db/queries/credit-commands.ts";
import { loadOrganization } from "../../db/queries/organizations.ts";
import type { Author } from "../../src/lib/author.ts";
import { keyCreated } from "../../src/lib/events/key-created.ts";
import { defineActor, type Turn } from "../runtime/definition.ts";
import type { ActorRegistry } from "../runtime/registry.ts";
import {
  type BalanceTotals,
  changeHeld,
  headroom,
  hold,
  keepHolds,
  noteTotals,
  type OrganizationHeadroom,
  type OrganizationState,
  type OrganizationTerms,
  organizationState,
  setCreditLimit,
} from "./state.ts";

/** One organization: its plan, its balance, and the creation of its keys. */
export const organizationActor = defineActor({
  kind: "organization",
  permissions: {
    reads: ["organizations", "accounts"],
    writes: ["api_keys", "accounts", "transactions", "credit_commands", "outbox", "changes"],
    events: [keyCreated.type],
  },

  async load(id, context): Promise<OrganizationState> {
    const loaded = await context.read(loadOrganization(id));
    return organizationState({
      id,
      record: loaded && {
        name: loaded.name,
        plan: loaded.plan,
        feeBasisPoints: loaded.feeBasisPoints === null ? undefined : BigInt(loaded.feeBasisPoints),
      },
      creditNano: loaded?.creditNano ?? 0n,
      creditLimitNano: loaded === undefined ? 0n : loaded.creditLimitNano,
      postedNano: loaded?.postedNano ?? 0n,
      sequence: loaded?.sequence ?? 0n,
      heldNano: 0n,
      longHeldNano: loaded?.heldNano ?? 0n,
    });
  },

  isAbsent: (state) => state.record === undefined,
  reload: keepHolds,
  mayPassivate: (state) => state.heldNano === 0n,

  verbs: {
    headroom: (
      state: OrganizationState,
      _: undefined,
    ): Turn<OrganizationState, OrganizationHeadroom> => ({ state, reply: headroom(state) }),

    /** Replies undefined if the organization does not exist. */
    terms: (
      state: OrganizationState,
      _: undefined,
    ): Turn<OrganizationState, OrganizationTerms | undefined> => ({ state, reply: state.record }),

    /** Replies the account of the hold, or undefined if too little is available. */
    hold(state: OrganizationState, holdNano: bigint): Turn<OrganizationState, string | undefined> {
      const held = hold(state, holdNano);
      if (held === undefined) return { state, reply: undefined };
      return { state: held, reply: held.accountId };
    },

    changeHeld: (
      state: OrganizationState,
      { byNano }: { byNano: bigint },
    ): Turn<OrganizationState, undefined> => ({
      state: changeHeld(state, byNano),
      reply: undefined,
    }),

    noteTotals: (
      state: OrganizationState,
      totals: BalanceTotals,
    ): Turn<OrganizationState, undefined> => ({
      state: noteTotals(state, totals),
      reply: undefined,
    }),

    createKey: (
      state: OrganizationState,
      { key, eventId, author }: { key: NewKey; eventId: string; author: Author },
    ): Turn<OrganizationState, undefined> => ({
      state,
      reply: undefined,
      effects: [
        {
          ...insertKeyEffect(
            key,
            keyCreated.build(eventId, state.id, {
              key_id: key.id,
              key_name: key.name,
              key_prefix: key.keyPrefix,
            }),
          ),
          author,
        },
      ],
    }),

    storeOrder: (
      state: OrganizationState,
      order: CreditOrder,
    ): Turn<OrganizationState, undefined> => ({
      state,
      reply: undefined,
      effects: [storeOrderEffect(order)],
    }),

    withdrawOrder: (
      state: OrganizationState,
      { id }: CreditOrder,
    ): Turn<OrganizationState, undefined> => ({
      state,
      reply: undefined,
      effects: [withdrawOrderEffect(id)],
    }),

    /**
     * Carries out an operator's order. The caller holds the amount that an adjustment takes. A new credit limit
     * applies to holds immediately, and no hold succeeds before the limit is durable.
     */
    carryOutOrder: (
      state: OrganizationState,
      command: CreditCommand,
    ): Turn<OrganizationState, undefined> => ({
      state:
        command.kind === "credit-limit" ? setCreditLimit(state, command.creditLimitNano) : state,
      reply: undefined,
      effects: [creditCommandEffect(command)],
    }),

    refuseOrder: (
      state: OrganizationState,
      command: CreditCommand,
    ): Turn<OrganizationState, undefined> => ({
      state,
      reply: undefined,
      effects: [refuseCommandEffect(command)],
    }),
  },
});

export type OrganizationActors = ActorRegistry<
  OrganizationState,
  (typeof organizationActor)["verbs"]
>;
