import { useState } from "preact/hooks";
import { Area, Choice, Field } from "../components/controls.tsx";
import { fieldsOf, type Settings, settings } from "./conversation.ts";

const EFFORTS = [
  ["", "Model default"],
  ["none", "None"],
  ["minimal", "Minimal"],
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
] as const;
/** Screen width from which the settings are initially open, in pixels. */
const WIDE_PIXELS = 1_080;
const MAX_TEMPERATURE = 2;

/** Returns the errors of settings, by their names. */
export function faultsOf({ temperature, maxTokens, fields }: Settings) {
  const temperatureValue = Number(temperature);
  const isTemperature = temperatureValue >= 0 && temperatureValue <= MAX_TEMPERATURE;
  return {
    temperature: isTemperature ? undefined : "Enter a number from 0 to 2.",
    maxTokens: /^(?:[1-9]\d{0,8})?$/.test(maxTokens)
      ? undefined
      : "Enter a whole number of at least 1.",
    fields: fieldsOf(fields) === undefined ? "Enter a JSON object." : undefined,
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
        <Area label="System prompt" value={system} onInput={set("system")} />
        <Field
          label="Temperature"
          value={temperature}
          onInput={set("temperature")}
          inputMode="decimal"
          error={faults.temperature}
          placeholder="Model default"
        />
        <Field
          label="Max output tokens"
          value={maxTokens}
          onInput={set("maxTokens")}
          inputMode="numeric"
          error={faults.maxTokens}
          placeholder="Model default"
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
          label="Additional fields (JSON)"
          value={fields}
          onInput={set("fields")}
          placeholder={'{"tools": […]}'}
          error={faults.fields}
        />
      </div>
    </details>
  );
}
