/** One person's ldpstream client. Browsers and Node; `@ldpstream/device/node` adds a store for Node. */

export { Activity } from "./activity.js";
export { Device, type DeviceOptions, type Silence, type Spent, type Waiting } from "./device.js";
export {
  ClockWentBack,
  CostlySurvey,
  DeviceError,
  NotSigned,
  RelayRequired,
  StepForgotten,
  StoreCleared,
  StoreFull,
  StoreHeld,
  UnknownSurvey,
  UnsafeSurvey,
  WalletFull,
  WrongSurvey,
} from "./errors.js";
export { IndexedDBStore } from "./indexeddb_store.js";
export type { RelayOptions } from "./relay.js";
export { fetchSurvey, Sender, type Attempt, type GatewayOptions } from "./send.js";
export type { Losses } from "./promise.js";
export { MemoryStore, type Json, type Store, type Transaction } from "./store.js";
export { Wallet, type SurveySpent, type WalletLimits, type WalletOptions, type WalletSpent } from "./wallet.js";
export { openSurvey, stepAt, type Attribute, type Cohort, type Level, type OpenOptions, type Recipe, type Survey } from "./survey.js";
export type { Value } from "./values.js";
