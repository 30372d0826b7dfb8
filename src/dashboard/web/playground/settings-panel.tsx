import { useState } from "preact/hooks";
import { Area, Choice, Field } from "../components/controls.tsx";
import { fieldsOf, type Settings, settings } from "./conversation.ts";

const EFFORTS = [
  ["", "As the model likes"],
  ["none", "None"],
  ["minimal", "Minimal"],
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
] as const;
/** Settings stand open where there is room at the side for them. */
const WIDE_PIXELS = 1_080;
const MAX_TEMPERATURE = 2;

/** What is wrong with settings, by their names. */
export function faultsOf({ temperature, maxTokens, fields }: Settings) {
  const heat = Number(temperature);
  const isTemperature = heat >= 0 && heat <= MAX_TEMPERATURE;
  return {
    temperature: isTemperature ? undefined : "A number from 0 to 2.",
    maxTokens: /^(?:[1-9]\d{0,8})?$/.test(maxTokens) ? undefined : "A whole number from 1.",
    fields: fieldsOf(fields) === undefined ? "It must be a JSON object." : undefined,
  };
}

export function SettingsPanel({ hasEffort }: { readonly hasEffort: boolean }) {
  const [isOpen] = useState(() => innerWidth > WIDE_PIXELS);
  const { system, temperature, maxTokens, effort, fields } = settings.value;
  const faults = faultsOf(settings.value);
  const set = (name: keyof Settings) => (value: string) => {
    settings.value = { ...settings.value, [name]: value };
  };
  return (
    <details class="panel" open={isOpen}>
      <summary>Settings</summary>
      <div class="stack">
        <Area label="System text" value={system} onInput={set("system")} />
        <Field
          label="Temperature"
          value={temperature}
          onInput={set("temperature")}
          inputMode="decimal"
          error={faults.temperature}
          placeholder="The model's own"
        />
        <Field
          label="Max tokens"
          value={maxTokens}
          onInput={set("maxTokens")}
          inputMode="numeric"
          error={faults.maxTokens}
          placeholder="The model's own"
        />
        {hasEffort && (
          <Choice
            label="Reasoning effort"
            value={effort}
            options={EFFORTS}
            onChange={set("effort")}
          />
        )}
        <Area
          label="Further fields (JSON)"
          value={fields}
          onInput={set("fields")}
          placeholder={'{"tools": […]}'}
          error={faults.fields}
        />
      </div>
    </details>
  );
}
