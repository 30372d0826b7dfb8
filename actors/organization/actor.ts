import {
  adjustCreditEffect,
  type CreditCommand,
  refuseCommandEffect,
} from "../../db/queries/credit-commands.ts";
import { insertKeyEffect, type NewKey } from "../../db/queries/key-write.ts";
import { loadOrganization } from "../../db/queries/organization-load.ts";
import { defineActor, type Turn } from "../runtime/definition.ts";
import {
  type BalanceTotals,
  changeHeld,
  headroom,
  hold,
  keepHolds,
  noteTotals,
  type OrganizationHeadroom,
  type OrganizationState,
  organizationState,
} from "./state.ts";

/** One organization: its plan, its balance, and the keys it makes. */
export const organizationActor = defineActor({
  kind: "organization",
  permissions: {
    reads: ["organizations", "accounts"],
    writes: ["api_keys", "accounts", "transactions", "credit_commands", "outbox", "changes"],
    events: ["key.created"],
    network: "none",
  },

  async load(id, context): Promise<OrganizationState> {
    const loaded = await context.read(loadOrganization(id));
    return organizationState({
      id,
      record: loaded && { name: loaded.name, plan: loaded.plan },
      creditNano: loaded?.creditNano ?? 0n,
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

    plan: (
      state: OrganizationState,
      _: undefined,
    ): Turn<OrganizationState, string | undefined> => ({
      state,
      reply: state.record?.plan,
    }),

    /** Replies the account that it is held in. Undefined, and nothing is held, where it is not free. */
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
      { key, eventId }: { key: NewKey; eventId: string },
    ): Turn<OrganizationState, undefined> => ({
      state,
      reply: undefined,
      effects: [
        insertKeyEffect(key, {
          eventId,
          organizationId: state.id,
          type: "key.created",
          data: { key_id: key.id, key_name: key.name, key_prefix: key.keyPrefix },
        }),
      ],
    }),

    /** Carries out an operator's order. Its caller holds what it takes. */
    adjustCredit: (
      state: OrganizationState,
      command: CreditCommand,
    ): Turn<OrganizationState, undefined> => ({
      state,
      reply: undefined,
      effects: [adjustCreditEffect(command)],
    }),

    refuseAdjustment: (
      state: OrganizationState,
      command: CreditCommand,
    ): Turn<OrganizationState, undefined> => ({
      state,
      reply: undefined,
      effects: [refuseCommandEffect(command)],
    }),
  },
});
