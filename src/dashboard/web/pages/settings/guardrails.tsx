import { useState } from "preact/hooks";
import { call } from "../../api.ts";
import { Button, Field } from "../../components/controls.tsx";
import { Dialog, Form, toast } from "../../components/dialog.tsx";
import { Skeleton } from "../../components/display.tsx";
import { useResource } from "../../resource.ts";
import { type Definition, DefinitionsPanel, type EditorProps } from "./definitions.tsx";
import {
  type Draft,
  draftOf,
  entityTitle,
  type GuardrailChoices,
  NEW_DRAFT,
  type Rule,
  RuleFields,
  ruleOf,
} from "./guardrail-rule.tsx";

/** A guardrail as GET /v1/guardrails lists it. */
interface Guardrail extends Definition {
  readonly rules: readonly Rule[];
}

export function GuardrailsSection() {
  return (
    <DefinitionsPanel<Guardrail>
      noun="guardrail"
      title="Guardrails"
      lead="A guardrail looks for something in what goes to models and what comes back, and blocks or removes it. Requests name it as guardrail; the gateway's operator can put one on all requests."
      emptyText="Keep personal data away from providers, or refuse what must not be asked or answered."
      deletedText="Requests that name it are refused from then on."
      columns={[
        {
          title: "Rules",
          cell: ({ rules }) => (
            <ul class="rules">
              {rules.map((rule, at) => (
                <li key={at}>{summaryOf(rule)}</li>
              ))}
            </ul>
          ),
        },
      ]}
      Editor={GuardrailDialog}
    />
  );
}

const FOUND: Readonly<Record<Rule["type"], string>> = {
  pii: "personal data",
  pattern: "what matches",
  injection: "attempts to take over the model",
  moderation: "what the moderation model flags",
};

/** Removes personal data (email addresses, IBANs) from requests and answers */
function summaryOf({ type, on, action, pattern, entities }: Rule) {
  const places = [
    ...(on.includes("input") ? ["requests"] : []),
    ...(on.includes("output") ? ["answers"] : []),
  ].join(" and ");
  const does = action === "redact" ? "Removes" : "Blocks";
  return (
    <>
      {does} {FOUND[type]}
      {pattern !== undefined && (
        <>
          {" "}
          <span class="code">{pattern}</span>
        </>
      )}
      {entities !== undefined && ` (${entities.map(entityTitle).join(", ")})`}
      {action === "redact" ? " from " : " in "}
      {places}
    </>
  );
}

const MAX_RULES = 32;

function GuardrailDialog({ edited, onChanged, onClose }: EditorProps<Guardrail>) {
  const choices = useResource<{ guardrails: GuardrailChoices }>("settings/choices");
  const [name, setName] = useState(edited?.name ?? "");
  const [drafts, setDrafts] = useState<readonly Draft[]>(
    () => edited?.rules.map(draftOf) ?? [NEW_DRAFT()],
  );
  const change = (id: string, changed: Partial<Draft>) =>
    setDrafts((before) => before.map((one) => (one.id === id ? { ...one, ...changed } : one)));
  const save = async () => {
    const body = { name, rules: drafts.map(ruleOf) };
    if (edited === undefined) await call("POST", "v1/guardrails", { body });
    else await call("PATCH", `v1/guardrails/${edited.id}`, { body });
    toast(edited === undefined ? `Created ${name}.` : `Changed ${name}.`);
    onClose();
    onChanged();
  };
  return (
    <Dialog
      title={edited === undefined ? "Create a guardrail" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field label="Name" value={name} onInput={setName} isRequired />
        {choices.data === undefined ? (
          (choices.error ?? <Skeleton />)
        ) : (
          <>
            {drafts.map((draft, at) => (
              <RuleFields
                key={draft.id}
                number={at + 1}
                draft={draft}
                choices={choices.data!.guardrails}
                onChange={(changed) => change(draft.id, changed)}
                onRemove={
                  drafts.length === 1
                    ? undefined
                    : () => setDrafts((before) => before.filter(({ id }) => id !== draft.id))
                }
              />
            ))}
            <div>
              <Button
                isDisabled={drafts.length >= MAX_RULES}
                onClick={() => setDrafts((before) => [...before, NEW_DRAFT()])}
              >
                Add a rule
              </Button>
            </div>
          </>
        )}
      </Form>
    </Dialog>
  );
}
