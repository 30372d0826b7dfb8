import { useState } from "preact/hooks";
import { session } from "../api.ts";
import { Area, Choice, Field } from "../components/controls.tsx";
import { useResource } from "../resource.ts";
import { mayRead } from "../rights.ts";
import { pastedName, teamId } from "./key.ts";
import { faultsOf, type ModelTraits, type Settings, settings } from "./settings.ts";

const EFFORTS = [
  ["", "Model default"],
  ["none", "None"],
  ["minimal", "Minimal"],
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
] as const;
const VOICES = [
  ["", "Text only"],
  ["alloy", "Sound, voice alloy"],
  ["echo", "Sound, voice echo"],
  ["shimmer", "Sound, voice shimmer"],
] as const;
/** Screen width from which the settings are initially open, in pixels. */
const WIDE_PIXELS = 1_080;

/** @param traits what at least one of the chosen models can do */
export function SettingsPanel({ hasEffort, makesSound }: ModelTraits) {
  const [isOpen] = useState(() => innerWidth > WIDE_PIXELS);
  const stated = settings.value;
  const faults = faultsOf(stated);
  const set = (name: keyof Settings) => (value: string) => {
    settings.value = { ...settings.value, [name]: value };
  };
  return (
    <details class="panel" open={isOpen}>
      <summary>Settings</summary>
      <div class="stack">
        <TeamChoice />
        <PresetChoice />
        <Area label="System prompt" value={stated.system} onInput={set("system")} />
        <Field
          label="Temperature"
          value={stated.temperature}
          onInput={set("temperature")}
          inputMode="decimal"
          error={faults.temperature}
          placeholder="Model default"
        />
        <Field
          label="Top p"
          value={stated.topP}
          onInput={set("topP")}
          inputMode="decimal"
          error={faults.topP}
          placeholder="Model default"
        />
        <Field
          label="Max output tokens"
          value={stated.maxTokens}
          onInput={set("maxTokens")}
          inputMode="numeric"
          error={faults.maxTokens}
          placeholder="Model default"
        />
        {hasEffort && (
          <Choice
            label="Reasoning effort"
            value={stated.effort}
            options={EFFORTS}
            onChange={set("effort")}
          />
        )}
        {makesSound && (
          <Choice label="Answer" value={stated.voice} options={VOICES} onChange={set("voice")} />
        )}
        <Area
          label="Tools (JSON)"
          value={stated.tools}
          onInput={set("tools")}
          placeholder={'[{"name": "find_weather", "parameters": {…}}]'}
          hint="The playground shows the calls, and you enter their results."
          error={faults.tools}
        />
        <Area
          label="Schema of the answer (JSON)"
          value={stated.schema}
          onInput={set("schema")}
          placeholder={'{"type": "object", "properties": {…}}'}
          error={faults.schema}
        />
        <Area
          label="Additional fields (JSON)"
          value={stated.fields}
          onInput={set("fields")}
          placeholder={'{"seed": 7}'}
          error={faults.fields}
        />
      </div>
    </details>
  );
}

/** The team whose budget and limits apply, for people who are in several. */
function TeamChoice() {
  const teams = session.value?.person?.teams ?? [];
  if (teams.length < 2 || pastedName.value !== undefined) return null;
  return (
    <Choice
      label="Team"
      value={teamId.value || teams[0]!.id}
      options={teams.map(({ id, name }) => [id, name])}
      onChange={(id) => {
        teamId.value = id;
      }}
    />
  );
}

function PresetChoice() {
  const { data } = useResource<{ data: { name: string }[] }>(
    mayRead("presets:manage") ? "v1/presets" : undefined,
  );
  const names = (data?.data ?? []).map(({ name }) => name);
  const { preset } = settings.value;
  if (preset !== "" && !names.includes(preset)) names.push(preset);
  if (names.length === 0) return null;
  return (
    <Choice
      label="Preset"
      value={preset}
      options={[["", "None"] as const, ...names.map((name) => [name, name] as const)]}
      onChange={(value) => {
        settings.value = { ...settings.value, preset: value };
      }}
    />
  );
}
