/** One person's ldpstream client. Browsers and Node; `@ldpstream/device/node` adds a store for Node. */

export { Activity } from "./activity.js";
export { switchedOff, type Consent, type ConsentMode } from "./consent.js";
export { Device, type DeviceOptions, type Left, type Preview, type Silence, type Spent, type Waiting } from "./device.js";
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
export { fetchSurvey, LOCAL, Sender, type Attempt, type GatewayOptions } from "./send.js";
export type { Losses } from "./promise.js";
export { MemoryStore, type Json, type Store, type Transaction } from "./store.js";
export { Wallet, type SurveySpent, type WalletLimits, type WalletOptions, type WalletSpent } from "./wallet.js";
export { openSurvey, stepAt, type Attribute, type Cohort, type Level, type OpenOptions, type Recipe, type Survey, type Words } from "./survey.js";
export type { Value } from "./values.js";
