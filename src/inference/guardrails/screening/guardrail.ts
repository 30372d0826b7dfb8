import type { Detector } from "./detector.ts";
import { Injection } from "./injection.ts";
import { Pattern } from "./patterns.ts";
import { PersonalData } from "./personal-data.ts";
import type { RuleType, ScreeningRule } from "./text-window.ts";

export type Direction = "input" | "output";

/** A rule as it is defined. */
export interface GuardrailRule {
  readonly type: RuleType;
  readonly on: readonly Direction[];
  readonly action: "block" | "redact";
  /** Of a rule of that type. */
  readonly pattern?: string;
  /** Of a rule on personal data; all of them where it is left out. */
  readonly entities?: readonly string[];
}

/** A guardrail as it applies to a request: plain data, which threads are sent. */
export interface Guardrail {
  readonly id: string;
  readonly rules: readonly GuardrailRule[];
}

/** Rule sets that are ready to be used; others make room for new ones. */
const MAX_COMPILED = 200;
const compiled = new Map<string, readonly ScreeningRule[]>();

/** The rules of guardrails for one direction, but for those that a model decides. */
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

/** Throws PatternError. */
export function detectorOf({ type, pattern, entities }: GuardrailRule): Detector | undefined {
  if (type === "pii") return new PersonalData(entities);
  if (type === "pattern") return new Pattern(pattern!);
  return type === "injection" ? new Injection() : undefined;
}
