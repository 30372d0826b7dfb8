import { Field } from "../components/controls.tsx";
import { useModels } from "./catalogue.ts";

/** Returns the model ids in a field, or null if the field is empty. */
export function modelsIn(text: string): readonly string[] | null {
  const models = text.split(",").flatMap((id) => id.trim() || []);
  return models.length === 0 ? null : models;
}

interface ModelsFieldProps {
  readonly value: string;
  readonly param: string;
  onInput(value: string): void;
}

const MAX_SUGGESTIONS = 50;

/** The models that a key or a team may call, as ids separated by commas. Suggests an id after each comma. */
export function ModelsField({ value, param, onInput }: ModelsFieldProps) {
  const { models, isLoading } = useModels();
  const before = value.slice(0, value.lastIndexOf(",") + 1);
  const prefix = before === "" ? "" : `${before} `;
  const text = value.slice(before.length).trim().toLowerCase();
  const ids = modelsIn(value) ?? [];
  const suggestions = models
    .filter(({ id }) => id.toLowerCase().includes(text) && !ids.includes(id))
    .slice(0, MAX_SUGGESTIONS)
    .map(({ id }) => prefix + id);
  // The beginning of an id is not reported, so that typing one reports nothing.
  const unlisted = isLoading
    ? []
    : ids.filter((id) => !models.some((model) => model.id.startsWith(id)));
  return (
    <Field
      label="Allowed models"
      param={param}
      value={value}
      onInput={onInput}
      placeholder="All models"
      suggestions={suggestions}
      hint={
        unlisted.length === 0
          ? "Model ids separated by commas"
          : `Not among the listed models: ${unlisted.join(", ")}`
      }
    />
  );
}
