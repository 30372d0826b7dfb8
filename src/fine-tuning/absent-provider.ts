import type { FineTuningProvider } from "../providers/fine-tuning.ts";
import { ProviderFailure } from "../providers/interface.ts";

/** A provider that the configuration does not name any more: it is out of reach until it does. */
export function absentProvider(providerId: string): FineTuningProvider {
  const unavailable = async (): Promise<never> => {
    throw new ProviderFailure("unavailable", `no provider ${providerId} is configured`);
  };
  return {
    uploadFile: unavailable,
    findFile: unavailable,
    deleteFile: unavailable,
    createJob: unavailable,
    findJobs: unavailable,
    readJob: unavailable,
    readEvents: unavailable,
    cancelJob: unavailable,
    deleteModel: unavailable,
    countTokens: unavailable,
  };
}
