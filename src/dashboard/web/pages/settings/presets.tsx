import { useState } from "preact/hooks";
import { ApiError, call } from "../../api.ts";
import { Area, Field } from "../../components/controls.tsx";
import { Dialog, Form, toast } from "../../components/dialog.tsx";
import { useResource } from "../../resource.ts";
import { numberIn } from "../key-dialog.tsx";
import { type Definition, DefinitionsPanel, type EditorProps } from "./definitions.tsx";

/** A preset in the answer of GET /v1/presets. */
interface Preset extends Definition {
  readonly model: string | null;
  readonly system: string | null;
  readonly parameters: Readonly<Record<string, unknown>>;
}

export function PresetsSection() {
  return (
    <DefinitionsPanel<Preset>
      noun="preset"
      title="Presets"
      lead="A preset is a model, a system prompt and other chat fields under one name. Requests name it in the field preset. Fields of the request take precedence."
      emptyText="Keep the settings of several programs in one place, and change them here without changing the programs."
      deletedText="Requests that name it are rejected."
      columns={[
        {
          title: "Model",
          cell: ({ model }) =>
            model === null ? (
              <span class="quiet">Model of the request</span>
            ) : (
              <span class="code">{model}</span>
            ),
        },
        {
          title: "Fields",
          isSecondary: true,
          cell: ({ system, parameters }) => {
            const fields = [...(system === null ? [] : ["system"]), ...Object.keys(parameters)];
            return fields.length === 0 ? <span class="quiet">None</span> : fields.join(", ");
          },
        },
      ]}
      Editor={PresetDialog}
    />
  );
}

const NUMBERS = [
  ["temperature", "Temperature", "0 to 2"],
  ["top_p", "Top p", "0 to 1"],
  ["max_tokens", "Max output tokens", "Tokens"],
] as const;

function PresetDialog({ edited, onChanged, onClose }: EditorProps<Preset>) {
  const [name, setName] = useState(edited?.name ?? "");
  const [model, setModel] = useState(edited?.model ?? "");
  const [system, setSystem] = useState(edited?.system ?? "");
  const [numbers, setNumbers] = useState(() => numbersOf(edited));
  const [others, setOthers] = useState(() => othersOf(edited));
  const models = useResource<{ data: { id: string }[] }>("v1/models?category=chat");
  const save = async () => {
    const body = {
      name,
      model: model.trim() || null,
      system: system || null,
      parameters: parametersOf(numbers, others),
    };
    if (edited === undefined) await call("POST", "v1/presets", { body });
    else await call("PATCH", `v1/presets/${edited.id}`, { body });
    toast(edited === undefined ? `Created ${name}.` : `Updated ${name}.`);
    onClose();
    onChanged();
  };
  return (
    <Dialog
      title={edited === undefined ? "Create a preset" : `Edit ${edited.name}`}
      onClose={onClose}
    >
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field label="Name" param="name" value={name} onInput={setName} isRequired />
        <Field
          label="Model"
          param="model"
          value={model}
          onInput={setModel}
          placeholder="Model of the request"
          suggestions={models.data?.data.map(({ id }) => id) ?? []}
        />
        <Area
          label="System prompt"
          param="system"
          value={system}
          onInput={setSystem}
          placeholder="You answer for the support team."
        />
        <div class="triple">
          {NUMBERS.map(([field, label, hint]) => (
            <Field
              key={field}
              label={label}
              hint={hint}
              value={numbers[field] ?? ""}
              onInput={(value) => setNumbers((before) => ({ ...before, [field]: value }))}
              inputMode="decimal"
            />
          ))}
        </div>
        <Area
          label="Additional fields (JSON)"
          value={others}
          onInput={setOthers}
          placeholder={'{"stop": ["END"], "reasoning": {"effort": "low"}}'}
          hint="A JSON object of request fields"
        />
      </Form>
    </Dialog>
  );
}

type Numbers = Readonly<Record<string, string>>;

const isNumberField = (field: string) => NUMBERS.some(([name]) => name === field);

function numbersOf(preset: Preset | undefined): Numbers {
  const stated = Object.entries(preset?.parameters ?? {});
  return Object.fromEntries(
    stated.flatMap(([field, value]) => (isNumberField(field) ? [[field, String(value)]] : [])),
  );
}

function othersOf(preset: Preset | undefined): string {
  const stated = Object.entries(preset?.parameters ?? {});
  const others = stated.filter(([field]) => !isNumberField(field));
  return others.length === 0 ? "" : JSON.stringify(Object.fromEntries(others), null, 2);
}

/** Returns the parameters of the form. Throws if a field has an invalid value. */
function parametersOf(numbers: Numbers, others: string): Record<string, unknown> {
  const stated = NUMBERS.flatMap(([field, label]) => {
    const value = numberIn(numbers[field] ?? "", label);
    return value === null ? [] : [[field, value] as const];
  });
  return { ...objectIn(others), ...Object.fromEntries(stated) };
}

function objectIn(text: string): object {
  if (text.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Reported below.
  }
  throw new ApiError(400, "invalid_body", "Additional fields must be a JSON object.", null);
}
