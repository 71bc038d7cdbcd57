// Draws one dashboard with Grafana's own panel components, from the dashboard's JSON and the answers of Prometheus.
//
// window.draw({board, answers, from, to}) draws every panel. `answers` has one list for each panel, with Prometheus's answer to
// each of its targets; times are Unix times in ms. The panels and PanelDataErrorView of Grafana's server are not published as a
// package; the few lines that choose a component and its arguments are restated here.
//
// Each panel's element has `data-state` (drawn, empty or error) and `data-missing`: the labels, fields, properties and
// transformations that the dashboard names but that do not exist. Grafana ignores them without a message.

import 'uplot/dist/uPlot.min.css';
import { Component } from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { firstValueFrom, of } from 'rxjs';
import {
  FieldType, Registry, applyFieldOverrides, createTheme, dateTime, getDisplayValueAlignmentFactors, getFieldDisplayName,
  getFieldDisplayValues, identityOverrideProcessor, standardEditorsRegistry, standardFieldConfigEditorRegistry,
  standardTransformers, standardTransformersRegistry, toDataFrame, transformDataFrame,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, PortalContainer, Table, ThemeContext, TimeSeries, VizRepeater } from '@grafana/ui';

const theme = createTheme({ colors: { mode: 'dark' } });
const WIDTH = 1200, ROW = 30, GAP = 8; // Grafana's row is 30 px high, with a gap of 8 px

// The properties of a field that the dashboards may set.
const STANDARD = ['unit', 'min', 'max', 'decimals', 'thresholds', 'mappings', 'color', 'noValue', 'displayName'];
const GRAPH = {
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', barAlignment: 0,
  barWidthFactor: 0.6, showPoints: 'auto', pointSize: 5, spanNulls: false, insertNulls: false,
  stacking: { mode: 'none', group: 'A' }, axisPlacement: 'auto', axisLabel: '', axisColorMode: 'text', axisBorderShow: false,
  scaleDistribution: { type: 'linear' }, axisCenteredZero: false, hideFrom: { tooltip: false, viz: false, legend: false },
  thresholdsStyle: { mode: 'off' }, fillBelowTo: undefined, lineStyle: undefined, axisSoftMin: undefined, axisSoftMax: undefined,
};
const TABLE = { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, width: undefined, minWidth: undefined };
const CUSTOM = { timeseries: GRAPH, table: TABLE, stat: {} };

const item = (id, isCustom) => ({
  id: isCustom ? `custom.${id}` : id, path: id, name: id, isCustom, description: '', settings: {},
  process: identityOverrideProcessor, shouldApply: () => true, override: () => null, editor: () => null,
});
standardEditorsRegistry.setInit(() => []);
standardFieldConfigEditorRegistry.setInit(() => STANDARD.map((id) => item(id, false)));
const TRANSFORMERS = ['mergeTransformer', 'organizeFieldsTransformer', 'sortByTransformer'].map((name) => standardTransformers[name]);
standardTransformersRegistry.setInit(() => TRANSFORMERS.map((t) => ({ id: t.id, name: t.name, transformation: t, editor: () => null })));

// ---- frames, as Grafana's data source of Prometheus makes them

function legend(target, labels, missing) {
  return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => {
    if (!(name in labels)) missing.add(`label ${name}`);
    return labels[name] ?? '';
  });
}

function number(text) {
  const value = Number(text.replace('Inf', 'Infinity'));
  return Number.isNaN(value) ? null : value;
}

function tableFrame(target, result, alone) {
  const samples = result.map((s) => [s.metric, s.value ?? s.values[s.values.length - 1]]);
  const names = [...new Set(samples.flatMap(([metric]) => Object.keys(metric)))].sort();
  return toDataFrame({ refId: target.refId, fields: [
    { name: 'Time', type: FieldType.time, values: samples.map(([, value]) => value[0] * 1000) },
    ...names.map((name) => ({ name, type: FieldType.string, values: samples.map(([metric]) => metric[name] ?? '') })),
    { name: alone ? 'Value' : `Value #${target.refId}`, type: FieldType.number, values: samples.map(([, value]) => number(value[1])) },
  ] });
}

function seriesFrame(target, series, missing) {
  const samples = series.values ?? [series.value], name = legend(target, series.metric, missing);
  return toDataFrame({ refId: target.refId, name, fields: [
    { name: 'Time', type: FieldType.time, values: samples.map((s) => s[0] * 1000) },
    {
      name: 'Value', type: FieldType.number, labels: series.metric, values: samples.map((s) => number(s[1])),
      config: { displayNameFromDS: name },
    },
  ] });
}

function frames(panel, answers, missing) {
  const tables = panel.targets.filter((t) => t.format === 'table');
  return panel.targets.flatMap((target, i) => {
    const { result } = answers[i];
    if (target.format !== 'table') return result.map((series) => seriesFrame(target, series, missing));
    return result.length ? [tableFrame(target, result, tables.length === 1)] : [];
  });
}

// ---- names in the dashboard that do not exist

const names = (data) => new Set(data.flatMap((frame) => frame.fields.flatMap((f) => [f.name, getFieldDisplayName(f, frame, data)])));

function named(step) {
  const o = step.options;
  return [...(o.sort ?? []).map((s) => s.field), ...Object.keys(o.excludeByName ?? {}), ...Object.keys(o.renameByName ?? {}),
    ...Object.keys(o.indexByName ?? {})];
}

async function transformed(panel, data, missing) {
  for (const step of panel.transformations ?? []) {
    if (!standardTransformersRegistry.getIfExists(step.id)) missing.add(`transformation ${step.id}`);
    else {
      if (data.length) named(step).filter((name) => !names(data).has(name)).forEach((name) => missing.add(`field ${name}`));
      data = await firstValueFrom(transformDataFrame([step], data) ?? of(data));
    }
  }
  return data;
}

function check(panel, data, missing) {
  if (!KINDS[panel.type]) return; // drawing this panel fails, and its state becomes "error"
  const known = new Set([...STANDARD, ...Object.keys(CUSTOM[panel.type]).map((id) => `custom.${id}`)]);
  const custom = Object.keys(panel.fieldConfig.defaults.custom ?? {}).map((id) => `custom.${id}`);
  const standard = Object.keys(panel.fieldConfig.defaults).filter((id) => id !== 'custom');
  const overrides = panel.fieldConfig.overrides ?? [];
  [...standard, ...custom, ...overrides.flatMap((o) => o.properties.map((p) => p.id))].filter((id) => !known.has(id))
    .forEach((id) => missing.add(`property ${id}`));
  if (!data.length) return;
  for (const { matcher, properties } of overrides) {
    const fields = properties.filter((p) => p.id === 'custom.fillBelowTo').map((p) => p.value);
    if (matcher.id === 'byName') fields.push(matcher.options);
    fields.filter((field) => !names(data).has(field)).forEach((field) => missing.add(`field ${field}`));
  }
}

// ---- panels

function configured(panel, data) {
  const { defaults, overrides = [] } = panel.fieldConfig;
  const fieldConfig = {
    defaults: {
      color: { mode: panel.type === 'timeseries' ? 'palette-classic' : 'thresholds' },
      ...defaults, custom: { ...CUSTOM[panel.type], ...defaults.custom },
    },
    overrides,
  };
  const fieldConfigRegistry = new Registry(() =>
    [...STANDARD.map((id) => item(id, false)), ...Object.keys(CUSTOM[panel.type] ?? {}).map((id) => item(id, true))]);
  return [applyFieldOverrides({ data, fieldConfig, fieldConfigRegistry, replaceVariables: (v) => v, theme, timeZone: 'utc' }), fieldConfig];
}

function Graph({ panel, data, width, height, range }) {
  return <TimeSeries frames={data} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height}
    legend={panel.options.legend} options={panel.options} replaceVariables={(v) => v} />;
}

function Numbers({ panel, data, fieldConfig, width, height }) {
  const o = panel.options;
  const getValues = () => getFieldDisplayValues({
    fieldConfig, reduceOptions: o.reduceOptions, replaceVariables: (v) => v, theme, data, timeZone: 'utc',
  });
  const one = (value, count) => (count === 1 && o.textMode !== 'value_and_name' ? { ...value, title: undefined } : value);
  const stat = ({ value, width, height, count }) =>
    <BigValue value={one(value.display, count)} count={count} colorMode={o.colorMode} graphMode={o.graphMode} justifyMode={o.justifyMode}
      textMode={o.textMode} width={width} height={height} theme={theme} wideLayout={o.wideLayout} />;
  return <VizRepeater source={data} getValues={getValues} getAlignmentFactors={getDisplayValueAlignmentFactors} renderCounter={1}
    width={width} height={height} orientation={o.orientation} itemSpacing={3} autoGrid renderValue={stat} />;
}

const Rows = ({ panel, data, fieldConfig, width, height, range }) =>
  <Table data={data[0]} width={width} height={height} noHeader={!panel.options.showHeader} showTypeIcons={panel.options.showTypeIcons}
    resizable initialSortBy={panel.options.sortBy} cellHeight={panel.options.cellHeight} timeRange={range} fieldConfig={fieldConfig} />;

const KINDS = { timeseries: Graph, stat: Numbers, table: Rows }; // another type is an error

class Guard extends Component {
  state = {};
  static getDerivedStateFromError(error) { return { error }; }
  componentDidCatch() { this.props.failed(); }
  render() { return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children; }
}

const hasNumber = (data) => data.some((frame) => frame.fields.some((f) => f.type === FieldType.number && f.values.some(Number.isFinite)));

function Panel({ panel, data, fieldConfig, missing, range }) {
  const { x, y, w, h } = panel.gridPos, cell = WIDTH / 24, Kind = KINDS[panel.type];
  const box = {
    position: 'absolute', left: x * cell + GAP / 2, top: y * (ROW + GAP) + GAP / 2, width: w * cell - GAP, height: h * (ROW + GAP) - GAP,
  };
  const state = hasNumber(data) ? 'drawn' : 'empty';
  const failed = () => { document.getElementById(`panel-${panel.id}`).dataset.state = 'error'; };
  // Grafana draws a panel whose frames exist, also if they have only nulls; without frames it shows `noValue` or "No data"
  const inner = (width, height) => data.length
    ? <Kind {...{ panel, data, fieldConfig, width, height, range }} />
    : <div style={{ height, display: 'flex', alignItems: 'center', justifyContent: 'center' }}>
        {panel.fieldConfig.defaults.noValue ?? 'No data'}
      </div>;
  return (
    <div id={`panel-${panel.id}`} data-state={state} data-missing={[...missing].join(', ')} style={box}>
      <Guard failed={failed}>
        <PanelChrome title={panel.title} width={box.width} height={box.height} padding="md" description={panel.description}>
          {(width, height) => <Guard failed={failed}>{inner(width, height)}</Guard>}
        </PanelChrome>
      </Guard>
    </div>
  );
}

let root;
window.draw = async ({ board, answers, from, to }) => {
  const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  const drawn = [];
  for (const [i, panel] of board.panels.entries()) {
    const missing = new Set();
    const data = await transformed(panel, frames(panel, answers[i], missing), missing);
    check(panel, data, missing);
    const [done, fieldConfig] = configured(panel, data);
    drawn.push(<Panel key={panel.id} {...{ panel, data: done, fieldConfig, missing, range }} />);
  }
  const { colors } = theme;
  const height = Math.max(...board.panels.map((p) => p.gridPos.y + p.gridPos.h)) * (ROW + GAP);
  root?.unmount();
  root = createRoot(document.getElementById('root'));
  flushSync(() => root.render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles /><PortalContainer />
      <div id="board" style={{ position: 'relative', width: WIDTH, height, background: colors.background.canvas, color: colors.text.primary }}>
        {drawn}
      </div>
    </ThemeContext.Provider>));
  for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame); // the graphs are drawn
  for (const panel of board.panels) { // a component may find no number in data that have one
    const element = document.getElementById(`panel-${panel.id}`);
    const shown = element.innerText.replace(panel.title, '').trim();
    if (element.dataset.state === 'drawn' && ['No data', panel.fieldConfig.defaults.noValue].includes(shown)) element.dataset.state = 'empty';
  }
};
