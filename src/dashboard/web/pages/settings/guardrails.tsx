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

/** A guardrail in the answer of GET /v1/guardrails. */
interface Guardrail extends Definition {
  readonly rules: readonly Rule[];
}

export function GuardrailsSection() {
  return (
    <DefinitionsPanel<Guardrail>
      noun="guardrail"
      title="Guardrails"
      lead="A guardrail checks requests and answers, and blocks or redacts matches. Requests name it in the field guardrail. The gateway's operator can apply one to all requests."
      emptyText="Keep personal data from providers, or block unwanted requests and answers."
      deletedText="Requests that name it are rejected."
      columns={[
        {
          title: "Rules",
          cell: ({ rules }) => (
            <ul class="rules">
              {rules.map((rule, index) => (
                <li key={index}>{summaryOf(rule)}</li>
              ))}
            </ul>
          ),
        },
      ]}
      Editor={GuardrailDialog}
    />
  );
}

const TARGETS: Readonly<Record<Rule["type"], string>> = {
  pii: "personal data",
  pattern: "matches of",
  injection: "prompt injection",
  moderation: "flagged content",
};

/** Returns a summary such as "Redacts personal data (email addresses, IBANs) from requests and answers". */
function summaryOf({ type, on, action, pattern, entities }: Rule) {
  const directions = [
    ...(on.includes("input") ? ["requests"] : []),
    ...(on.includes("output") ? ["answers"] : []),
  ].join(" and ");
  const verb = action === "redact" ? "Redacts" : "Blocks";
  return (
    <>
      {verb} {TARGETS[type]}
      {pattern !== undefined && (
        <>
          {" "}
          <span class="code">{pattern}</span>
        </>
      )}
      {entities !== undefined && ` (${entities.map(entityTitle).join(", ")})`}
      {action === "redact" ? " from " : " in "}
      {directions}
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
    setDrafts((before) =>
      before.map((draft) => (draft.id === id ? { ...draft, ...changed } : draft)),
    );
  const save = async () => {
    const body = { name, rules: drafts.map(ruleOf) };
    if (edited === undefined) await call("POST", "v1/guardrails", { body });
    else await call("PATCH", `v1/guardrails/${edited.id}`, { body });
    toast(edited === undefined ? `Created ${name}.` : `Updated ${name}.`);
    onClose();
    onChanged();
  };
  return (
    <Dialog
      title={edited === undefined ? "Create a guardrail" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field label="Name" param="name" value={name} onInput={setName} isRequired />
        {choices.data === undefined ? (
          (choices.error ?? <Skeleton />)
        ) : (
          <>
            {drafts.map((draft, index) => (
              <RuleFields
                key={draft.id}
                number={index + 1}
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
