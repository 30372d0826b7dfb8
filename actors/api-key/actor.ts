import { dayAccountId, monthAccountId } from "../../db/ledger/rows.ts";
import { deleteKeyEffect, loadKey, updateKeyEffect } from "../../db/queries/api-keys.ts";
import {
  type ApiKeyRecord,
  type ApiKeySettings,
  KEY_SETTINGS,
  type SettingName,
} from "../../src/lib/api-key-record.ts";
import type { Author } from "../../src/lib/author.ts";
import { budgetExhausted } from "../../src/lib/events/budget-exhausted.ts";
import { budgetThreshold } from "../../src/lib/events/budget-threshold.ts";
import { keyDeleted } from "../../src/lib/events/key-deleted.ts";
import { keyUpdated } from "../../src/lib/events/key-updated.ts";
import {
  emptyPeriods,
  keepHolds,
  type PeriodNames,
  rollPeriods,
  type SpenderState,
  spenderState,
} from "../budget-periods/state.ts";
import { spenderVerbs } from "../budget-periods/verbs.ts";
import { defineActor, type Turn, type TurnContext } from "../runtime/definition.ts";
import type { ActorRegistry } from "../runtime/registry.ts";

/**
 * An API key is
 *
 *   unknown   no row, or deleted: nothing is allowed, permanently
 *   inactive  is_active is false: nothing is allowed until it is activated again
 *   expired   expires_at has passed: nothing is allowed until it is changed
 *   active    its scopes, models, rate limit and budgets decide
 *
 * The record changes by `update` and `remove` (by the key's manager), and by a reload after another process
 * changed it.
 */
export type ApiKeyState = SpenderState<ApiKeyRecord>;

export const KEY_PERIODS: PeriodNames = { day: dayAccountId, month: monthAccountId };

export interface KeyUpdate {
  readonly changed: Partial<ApiKeySettings>;
  /** Scopes that the key must still have when the change is written, because the caller could not grant them. */
  readonly requiredScopes?: readonly string[] | undefined;
  readonly eventId: string;
  /** Undefined: the gateway itself makes the change. */
  readonly author?: Author | undefined;
}

/** The empty map that all keys share, because most never exhaust a budget. */
const NONE: ReadonlyMap<string, boolean> = new Map();

/** One API key: its permissions and its budgets. */
export const apiKeyActor = defineActor({
  kind: "api-key",
  permissions: {
    reads: ["api_keys", "accounts", "teams", "members", "subject_budgets"],
    writes: ["api_keys", "accounts", "outbox", "changes"],
    events: [keyUpdated.type, keyDeleted.type, budgetThreshold.type, budgetExhausted.type],
  },

  async load(id, context): Promise<ApiKeyState> {
    const empty = emptyPeriods(KEY_PERIODS, id, context.nowMs);
    const { record, totals } = await context.read(
      loadKey(id, [empty.day.accountId, empty.month.accountId]),
    );
    return spenderState({
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
    /** Replies the record, for the checks before the hold. */
    inspect: (state: ApiKeyState, _: undefined): Turn<ApiKeyState, ApiKeyRecord | undefined> => ({
      state,
      reply: state.record,
    }),

    ...spenderVerbs<ApiKeyRecord>(),

    /** Replies false if the key no longer exists. */
    update(
      state: ApiKeyState,
      { changed, requiredScopes, eventId, author }: KeyUpdate,
      context: TurnContext,
    ): Turn<ApiKeyState, boolean> {
      if (state.record === undefined) return { state, reply: false };
      // An UPDATE without fields would return no row.
      if (Object.keys(changed).length === 0) return { state, reply: true };
      const rolled = rollPeriods(state, context.nowMs);
      const record: ApiKeyRecord = { ...state.record, ...changed };
      return {
        state: spenderState({ ...rolled, record }),
        reply: true,
        effects: [
          {
            ...updateKeyEffect(
              state.id,
              changed,
              [rolled.day.accountId, rolled.month.accountId],
              keyUpdated.build(eventId, record.organizationId, {
                key_id: record.id,
                key_name: record.name,
                changed: fieldsOf(changed),
              }),
              requiredScopes,
            ),
            author,
          },
        ],
      };
    },

    /** Replies false if the key no longer exists. */
    remove(
      state: ApiKeyState,
      { eventId, author }: Pick<KeyUpdate, "eventId" | "author">,
    ): Turn<ApiKeyState, boolean> {
      const { record } = state;
      if (record === undefined) return { state, reply: false };
      return {
        state: spenderState<ApiKeyRecord>({ ...state, record: undefined }),
        reply: true,
        effects: [
          {
            ...deleteKeyEffect(
              record.id,
              keyDeleted.build(eventId, record.organizationId, {
                key_id: record.id,
                key_name: record.name,
              }),
            ),
            author,
          },
        ],
      };
    },
  },
});

function fieldsOf(changed: Partial<ApiKeySettings>): string[] {
  return Object.keys(changed).map((name) => KEY_SETTINGS[name as SettingName].field);
}

export type ApiKeyActors = ActorRegistry<ApiKeyState, (typeof apiKeyActor)["verbs"]>;
