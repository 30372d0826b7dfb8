import type { Detector } from "./detector.ts";
import { Injection } from "./injection.ts";
import { Pattern } from "./patterns.ts";
import { PersonalData } from "./personal-data.ts";
import type { RuleType, ScreeningRule } from "./text-window.ts";

export type Direction = "input" | "output";

/** A rule in its stored form. */
export interface GuardrailRule {
  readonly type: RuleType;
  readonly on: readonly Direction[];
  readonly action: "block" | "redact";
  /** Regular expression of a rule of type pattern. */
  readonly pattern?: string;
  /** Kinds of data that a rule of type pii finds. Absent: all kinds. */
  readonly entities?: readonly string[];
}

/** A guardrail of a request. Plain data, so that it can be sent to threads. */
export interface Guardrail {
  readonly id: string;
  readonly rules: readonly GuardrailRule[];
}

/** Compiled rule sets in the cache. The oldest is removed first. */
const MAX_COMPILED = 200;
const compiled = new Map<string, readonly ScreeningRule[]>();

/** Returns the compiled rules of guardrails for one direction, without rules that a model decides. */
export function rulesFor(
  guardrails: readonly Guardrail[],
  on: Direction,
): readonly ScreeningRule[] {
  const key = on + JSON.stringify(guardrails);
  let rules = compiled.get(key);
  if (rules === undefined) {
    rules = guardrails.flatMap(({ id, rules: stated }) =>
      stated.flatMap((rule) => {
        const detector = rule.on.includes(on) ? detectorOf(rule) : undefined;
        const { type, action } = rule;
        return detector === undefined ? [] : [{ guardrail: id, type, action, detector }];
      }),
    );
    compiled.set(key, rules);
    for (const oldest of compiled.keys()) {
      if (compiled.size <= MAX_COMPILED) break;
      compiled.delete(oldest);
    }
  }
  return rules;
}

/** Returns the rule's detector, or undefined if a model decides. Throws PatternError if the pattern is invalid. */
export function detectorOf({ type, pattern, entities }: GuardrailRule): Detector | undefined {
  if (type === "pii") return new PersonalData(entities);
  if (type === "pattern") return new Pattern(pattern!);
  return type === "injection" ? new Injection() : undefined;
}
