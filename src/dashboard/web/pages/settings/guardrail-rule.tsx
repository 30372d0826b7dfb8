import { ApiError } from "../../api.ts";
import { Button, Check, Choice, Field } from "../../components/controls.tsx";
import { capitalized } from "../../format.ts";

/** A rule in the API's form. */
export interface Rule {
  readonly type: "pii" | "pattern" | "injection" | "moderation";
  readonly on: readonly ("input" | "output")[];
  readonly action: "block" | "redact";
  readonly pattern?: string;
  readonly entities?: readonly string[];
}

export interface GuardrailChoices {
  readonly entities: readonly string[];
  readonly can_moderate: boolean;
}

/** A rule during editing. */
export interface Draft {
  readonly id: string;
  readonly type: Rule["type"];
  readonly on: "both" | "input" | "output";
  readonly action: Rule["action"];
  readonly pattern: string;
  /** The kinds of personal data to find. Undefined means every kind. */
  readonly entities: readonly string[] | undefined;
}

export const NEW_DRAFT = (): Draft => ({
  id: crypto.randomUUID(),
  type: "pii",
  on: "both",
  action: "redact",
  pattern: "",
  entities: undefined,
});

export function draftOf({ type, on, action, pattern = "", entities }: Rule): Draft {
  const id = crypto.randomUUID();
  return { id, type, on: on.length === 2 ? "both" : on[0]!, action, pattern, entities };
}

/** Returns the rule of a draft. Throws if it has no kind of personal data. */
export function ruleOf({ type, on, action, pattern, entities }: Draft, index: number): Rule {
  if (type === "pii" && entities?.length === 0) {
    const message = `Rule ${index + 1}: choose at least one kind of personal data.`;
    throw new ApiError(400, "invalid_body", message, null);
  }
  return {
    type,
    on: on === "both" ? ["input", "output"] : [on],
    action: type === "moderation" ? "block" : action,
    ...(type === "pattern" && { pattern }),
    ...(type === "pii" && entities !== undefined && { entities }),
  };
}

const ENTITIES: Readonly<Record<string, string>> = {
  email: "email addresses",
  phone: "phone numbers",
  credit_card: "card numbers",
  iban: "IBANs",
  ip_address: "IP addresses",
  us_ssn: "US Social Security numbers",
  uk_nino: "UK National Insurance numbers",
  de_tax_id: "German tax ids",
  fr_nir: "French NIRs",
  es_dni: "Spanish DNIs",
  it_fiscal_code: "Italian fiscal codes",
  nl_bsn: "Dutch BSNs",
  pl_pesel: "Polish PESELs",
  br_cpf: "Brazilian CPFs",
};

export function entityTitle(entity: string): string {
  return ENTITIES[entity] ?? entity;
}

const TYPES = {
  pii: "Personal data",
  pattern: "Pattern",
  injection: "Prompt injection",
  moderation: "Moderation",
} as const;

const HINTS: Readonly<Record<Draft["type"], string | undefined>> = {
  pii: undefined,
  pattern: undefined,
  injection: "Phrases such as “ignore all previous instructions”, in seven languages.",
  moderation:
    "Hate, violence, self-harm and similar content that the gateway's moderation model flags.",
};

interface RuleFieldsProps {
  readonly number: number;
  readonly draft: Draft;
  readonly choices: GuardrailChoices;
  onChange(changed: Partial<Draft>): void;
  /** Removes the rule. Undefined if it is the only rule. */
  readonly onRemove: (() => void) | undefined;
}

export function RuleFields({ number, draft, choices, onChange, onRemove }: RuleFieldsProps) {
  const { type, on, action, pattern } = draft;
  // A moderation rule keeps its type if the gateway no longer has a moderation model.
  const canModerate = choices.can_moderate || type === "moderation";
  const types = Object.entries(TYPES).filter(([id]) => id !== "moderation" || canModerate);
  return (
    <fieldset class="rule">
      <legend>Rule {number}</legend>
      {onRemove !== undefined && (
        <Button variant="quiet" label={`Remove rule ${number}`} onClick={onRemove}>
          Remove
        </Button>
      )}
      <Choice
        label="Detects"
        value={type}
        options={types}
        onChange={(value) => onChange({ type: value as Draft["type"] })}
      />
      {HINTS[type] !== undefined && <p class="hint">{HINTS[type]}</p>}
      {type === "pattern" && (
        <Field
          label="Pattern"
          value={pattern}
          onInput={(value) => onChange({ pattern: value })}
          isRequired
          placeholder="project-[a-z]+"
          hint="A regular expression in RE2 syntax; the prefix (?i) ignores case"
        />
      )}
      {type === "pii" && <Entities draft={draft} choices={choices} onChange={onChange} />}
      <div class="pair">
        <Choice
          label="Applies to"
          value={on}
          options={[
            ["both", "Requests and answers"],
            ["input", "Requests"],
            ["output", "Answers"],
          ]}
          onChange={(value) => onChange({ on: value as Draft["on"] })}
        />
        {type !== "moderation" && (
          <Choice
            label="Action"
            value={action}
            options={[
              ["redact", "Redact"],
              ["block", "Block"],
            ]}
            onChange={(value) => onChange({ action: value as Draft["action"] })}
          />
        )}
      </div>
    </fieldset>
  );
}

function Entities({ draft, choices, onChange }: Omit<RuleFieldsProps, "number" | "onRemove">) {
  const { entities } = draft;
  return (
    <>
      <Check
        label="Every kind of personal data"
        isChecked={entities === undefined}
        onChange={(isAll) => onChange({ entities: isAll ? undefined : [] })}
      />
      {entities !== undefined && (
        <div class="checks">
          {choices.entities.map((entity) => (
            <Check
              key={entity}
              label={capitalized(entityTitle(entity))}
              isChecked={entities.includes(entity)}
              onChange={(isChecked) => {
                const others = entities.filter((item) => item !== entity);
                onChange({ entities: isChecked ? [...others, entity] : others });
              }}
            />
          ))}
        </div>
      )}
    </>
  );
}
