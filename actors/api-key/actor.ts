import type { AccountTotals } from "../../db/ledger/rows.ts";
import {
  budgetExhaustedEffect,
  deleteKeyEffect,
  loadKey,
  type NewPeriod,
  updateKeyEffect,
} from "../../db/queries/api-keys.ts";
import { budgetExhausted } from "../../src/events/budget-exhausted.ts";
import { budgetThreshold } from "../../src/events/budget-threshold.ts";
import { keyDeleted } from "../../src/events/key-deleted.ts";
import { keyUpdated } from "../../src/events/key-updated.ts";
import {
  type ApiKeyRecord,
  type ApiKeySettings,
  SETTING_FIELDS,
} from "../../src/lib/api-key-record.ts";
import { defineActor, type Turn, type TurnContext } from "../runtime/definition.ts";
import type { ActorRegistry } from "../runtime/registry.ts";
import {
  type ApiKeyState,
  changeHeld,
  emptyPeriods,
  extendHold,
  type HeldChange,
  headroom,
  hold,
  type KeyHeadroom,
  type KeyPeriods,
  keepHolds,
  keyState,
  notePosted,
  rollPeriods,
} from "./state.ts";

export interface KeyUpdate {
  readonly changed: Partial<ApiKeySettings>;
  /** Scopes that the key must hold when the change is written, because who changes it could not grant them. */
  readonly keptScopes?: readonly string[] | undefined;
  readonly eventId: string;
}

/** One for all: most keys never exhaust a budget. */
const NONE: ReadonlySet<string> = new Set();

/** One API key: who may do what with it, and what it may still spend. */
export const apiKeyActor = defineActor({
  kind: "api-key",
  permissions: {
    reads: ["api_keys", "accounts"],
    writes: ["api_keys", "accounts", "outbox", "changes"],
    events: [keyUpdated.type, keyDeleted.type, budgetThreshold.type, budgetExhausted.type],
  },

  async load(id, context): Promise<ApiKeyState> {
    const empty = emptyPeriods(id, context.nowMs);
    const { record, totals } = await context.read(
      loadKey(id, [empty.day.accountId, empty.month.accountId]),
    );
    return keyState({
      id,
      record,
      day: { ...empty.day, ...totals.get(empty.day.accountId) },
      month: { ...empty.month, ...totals.get(empty.month.accountId) },
      dayHeldNano: 0n,
      monthHeldNano: 0n,
      exhausted: NONE,
    });
  },

  isAbsent: (state) => state.record === undefined,
  reload: keepHolds,
  mayPassivate: (state) => state.dayHeldNano === 0n && state.monthHeldNano === 0n,

  verbs: {
    /** The record, for the checks that come before money. */
    inspect: (state: ApiKeyState, _: undefined): Turn<ApiKeyState, ApiKeyRecord | undefined> => ({
      state,
      reply: state.record,
    }),

    headroom(
      state: ApiKeyState,
      _: undefined,
      context: TurnContext,
    ): Turn<ApiKeyState, KeyHeadroom> {
      const rolled = rollPeriods(state, context.nowMs);
      return { state: rolled, reply: headroom(rolled) };
    },

    /** Replies the periods in which it is held. Undefined, and nothing is held, where it may not be. */
    hold(
      state: ApiKeyState,
      holdNano: bigint,
      context: TurnContext,
    ): Turn<ApiKeyState, KeyPeriods | undefined> {
      const rolled = rollPeriods(state, context.nowMs);
      const held = hold(rolled, holdNano);
      return held === undefined
        ? { state: rolled, reply: undefined }
        : { state: held, reply: held };
    },

    /** Replies false, and nothing more is held, where it may not be. */
    extendHold(state: ApiKeyState, change: HeldChange): Turn<ApiKeyState, boolean> {
      const held = extendHold(state, change);
      return { state: held ?? state, reply: held !== undefined };
    },

    changeHeld: (state: ApiKeyState, change: HeldChange): Turn<ApiKeyState, undefined> => ({
      state: changeHeld(state, change),
      reply: undefined,
    }),

    notePosted: (
      state: ApiKeyState,
      totals: ReadonlyMap<string, AccountTotals>,
    ): Turn<ApiKeyState, undefined> => ({ state: notePosted(state, totals), reply: undefined }),

    /** A refusal that spend alone explains: emits the events of these periods unless they went out. */
    exhausted(state: ApiKeyState, periods: readonly NewPeriod[]): Turn<ApiKeyState, undefined> {
      const fresh = periods.filter((period) => !state.exhausted.has(period.id));
      if (fresh.length === 0) return { state, reply: undefined };
      return {
        state: { ...state, exhausted: new Set([...state.exhausted, ...fresh.map(({ id }) => id)]) },
        reply: undefined,
        effects: [budgetExhaustedEffect(fresh)],
      };
    },

    /** Replies false where the key does not exist any more. */
    update(
      state: ApiKeyState,
      { changed, keptScopes, eventId }: KeyUpdate,
      context: TurnContext,
    ): Turn<ApiKeyState, boolean> {
      if (state.record === undefined) return { state, reply: false };
      // A call without fields returns nothing.
      if (Object.keys(changed).length === 0) return { state, reply: true };
      const rolled = rollPeriods(state, context.nowMs);
      const record: ApiKeyRecord = { ...state.record, ...changed };
      return {
        state: keyState({ ...rolled, record }),
        reply: true,
        effects: [
          updateKeyEffect(
            state.id,
            changed,
            [rolled.day.accountId, rolled.month.accountId],
            keyUpdated.build(eventId, record.organizationId, {
              key_id: record.id,
              key_name: record.name,
              changed: fieldsOf(changed),
            }),
            keptScopes,
          ),
        ],
      };
    },

    /** Replies false where the key does not exist any more. */
    remove(state: ApiKeyState, { eventId }: { eventId: string }): Turn<ApiKeyState, boolean> {
      const { record } = state;
      if (record === undefined) return { state, reply: false };
      return {
        state: keyState({ ...state, record: undefined }),
        reply: true,
        effects: [
          deleteKeyEffect(
            record.id,
            keyDeleted.build(eventId, record.organizationId, {
              key_id: record.id,
              key_name: record.name,
            }),
          ),
        ],
      };
    },
  },
});

function fieldsOf(changed: Partial<ApiKeySettings>): string[] {
  return Object.keys(changed).map((setting) => SETTING_FIELDS[setting as keyof ApiKeySettings]);
}

/** The actors of all API keys. */
export type ApiKeyActors = ActorRegistry<ApiKeyState, (typeof apiKeyActor)["verbs"]>;
