// From a report's data to what Apache ECharts draws: sections of text, tables and figures. No browser is asked for
// anything here, and nothing newer than ECMAScript 5: `tidemark report --figures` runs this, too.
var Tidemark = (function () {
  'use strict';

  var themes = {
    light: {ink: '#1d2530', muted: '#5c6773', line: '#dde1e6', paper: '#ffffff', no: '#b3372f', accent: '#2f5d8a',
            heat: ['#f4f6f8', '#bcd2e4', '#5b8db8', '#2f5d8a', '#1b3a5c']},
    dark: {ink: '#e4e8ec', muted: '#97a2ae', line: '#323a44', paper: '#14181d', no: '#ec8078', accent: '#8fb8de',
           heat: ['#1c2229', '#27425c', '#3a6a96', '#6c9dcb', '#bcd8f2']}
  };
  // Bottom first: state in blues, activations in greens, traffic in oranges, what drivers hold in greys.
  var order = [
    ['parameters', '#2f5d8a'], ['gradients', '#5b8db8'], ['optimizer_master', '#8fb3d1'],
    ['optimizer_moments', '#b9d0e3'], ['adapters', '#7b5ea7'], ['quantization', '#9d85c1'], ['kv_cache', '#bfafd8'],
    ['saved_activations', '#2a8f83'], ['recompute', '#5fb3a7'], ['temporaries', '#94cfc6'], ['logits_loss', '#c2e4de'],
    ['comm_tp', '#c9752a'], ['comm_cp', '#d68d46'], ['comm_ep', '#e0a566'], ['comm_dp', '#e8bd8b'],
    ['comm_pp', '#f0d5b2'], ['offload_staging', '#8a6d5a'], ['workspaces', '#7f8791'], ['fragmentation', '#d9a3a0'],
    ['nccl', '#a3aab3'], ['context', '#c5cad1']
  ];
  var colours = {};
  order.forEach(function (entry) { colours[entry[0]] = entry[1]; });
  var phase_colours = {construction: '#a3aab3', forward: '#2a8f83', backward: '#2f5d8a', optimizer_step: '#7b5ea7',
                       communication: '#c9752a', rollout: '#9d85c1'};
  // Of communicators: none that a phase has.
  var slot_colours = ['#8a6d5a', '#d68d46', '#e8bd8b', '#b3a08f', '#d9a3a0', '#7f8791', '#5c4a3d', '#c5cad1', '#f0d5b2'];

  // -- numbers as people read them ------------------------------------------------------------------------------------

  function gib(bytes) { return (bytes / 1073741824).toFixed(2) + ' GiB'; }
  function mib(bytes) {
    return bytes >= 1073741824 ? gib(bytes) : (bytes / 1048576).toFixed(bytes < 10485760 ? 2 : 1) + ' MiB';
  }
  /// "h100-sxm-80g" of a file's path.
  function stem(name) { return String(name).replace(/^.*\//, '').replace(/\.(toml|json)$/, ''); }
  /// What was asked, in a line or two: of a scenario as its file has it, or with every default filled in.
  function job_words(job, without) {
    var train = job.train || {}, layout = job.layout || {};
    function name(of) { return stem(typeof of === 'object' && of ? of.name : of); }
    function said(table, tables_name, keys) {
      return keys.filter(function (key) {
        return table[key] !== undefined && (without || []).indexOf(tables_name + '.' + key) < 0;
      }).map(function (key) { return words(key) + ' ' + table[key]; });
    }
    var runs = said(train, 'train', ['sequence_length', 'micro_batch', 'global_batch', 'precision', 'recompute']);
    var cut = said(layout, 'layout', ['tensor', 'sequence_parallel', 'context', 'expert', 'pipeline', 'data', 'sharding', 'schedule']);
    return [name(job.model) + ' on ' + job.gpus + ' GPUs of ' + name(job.cluster) +
            (job.runtime && job.runtime.name ? ' under ' + job.runtime.name : '')]
        .concat(cut.length ? [cut.join(', ')] : [], runs.length ? [runs.join(', ')] : []);
  }
  function space_words(record) {
    var moved = record.axes.map(function (axis_) { return axis_.name; });
    return (record.base ? job_words(record.base, moved) : []).concat(record.axes.map(function (axis_) {
      return axis_.name + ': ' + axis_.values.slice(0, 12).join(', ') + (axis_.values.length > 12 ? ', …' : '');
    }));
  }
  /// A cell of a table: as people read it, and as plain bytes where it goes into CSV.
  function bytes_cell(bytes, shown) { return {bytes: bytes, toString: function () { return shown(bytes); }}; }
  function gib_cell(bytes) { return bytes_cell(bytes, gib); }
  function mib_cell(bytes) { return bytes_cell(bytes, mib); }
  function percent(share) { return (100 * share).toFixed(1) + ' %'; }
  function thousands(n) { return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ',').replace(/,/g, '\u202f'); }
  function words(name) { return name.replace(/_/g, ' '); }
  function escaped(text) { return String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;'); }
  /// A unit for times up to `ns`.
  function clock(ns) {
    var units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
    for (var i = 0; i < units.length; ++i)
      if (ns >= units[i][0] || i === units.length - 1) return {scale: units[i][0], unit: units[i][1]};
    return null;
  }
  function time(ns) {
    var c = clock(Math.abs(ns));
    return (ns / c.scale).toPrecision(4) + ' ' + c.unit;
  }
  function dot(colour) {
    return '<span style="display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:6px;background:' +
           colour + '"></span>';
  }
  function row(left, right) {
    return '<div style="display:flex;justify-content:space-between;gap:18px"><span>' + left + '</span><b>' + right +
           '</b></div>';
  }
  function sums(steps) {
    var sum = 0;
    return steps.map(function (step) { return sum += step; });
  }
  function place_text(phase, micro_batch, op) {
    return words(phase) + (micro_batch >= 0 ? ' of micro-batch ' + micro_batch : '') + (op ? ', ' + op : '');
  }
  function instant(at) {
    return 'step ' + at.step + ', ' + place_text(at.phase, at.micro_batch === null ? -1 : at.micro_batch, at.op);
  }

  // -- what all figures have in common ------------------------------------------------------------------------------

  /// 1, 2 or 5 times a power of ten, no less than `most`.
  function round_step(most) {
    var ten = Math.pow(10, Math.floor(Math.log(most) / Math.LN10));
    return [1, 2, 5, 10].map(function (n) { return n * ten; }).filter(function (n) { return n >= most * (1 - 1e-9); })[0];
  }
  function axis(theme, more) {
    var base = {
      nameTextStyle: {color: theme.muted}, axisLabel: {color: theme.muted},
      axisLine: {lineStyle: {color: theme.line}}, axisTick: {lineStyle: {color: theme.line}},
      splitLine: {lineStyle: {color: theme.line}}
    };
    for (var key in more) base[key] = more[key];
    return base;
  }
  function time_axis(theme, c, end, more) {
    var base = {type: 'value', name: 'time in the step (' + c.unit + ')', nameLocation: 'middle', nameGap: 26, max: end,
                splitLine: {show: false},
                axisLabel: {color: theme.muted, hideOverlap: true, showMaxLabel: false,
                            formatter: function (t) { return String(+t.toPrecision(6)); }}};
    for (var key in more) base[key] = more[key];
    return axis(theme, base);
  }
  function tooltip(theme, more) {
    var base = {backgroundColor: theme.paper, borderColor: theme.line, confine: true, transitionDuration: 0,
                textStyle: {color: theme.ink, fontSize: 12}};
    for (var key in more) base[key] = more[key];
    return base;
  }
  function zoom(theme, axis_index, filter) {
    return [{type: 'inside', xAxisIndex: axis_index, filterMode: filter, zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false},
            {type: 'slider', xAxisIndex: axis_index, filterMode: filter, height: 16, bottom: 4, showDetail: false,
             borderColor: theme.line, textStyle: {color: theme.muted}, brushSelect: false}];
  }
  function legend(theme, names, more) {
    var base = {show: true, data: names, textStyle: {color: theme.ink, fontSize: 12}, itemWidth: 12, itemHeight: 10,
                icon: 'rect', type: 'plain', top: 5, left: 0, padding: 0, inactiveColor: theme.line};
    for (var key in more) base[key] = more[key];
    return base;
  }
  /// Above whatever it crosses. `across`: upright, with its name on the side of the axis that `at_top` says.
  function capacity_line(theme, bytes, across, at_top) {
    var at = across ? {xAxis: bytes / 1073741824} : {yAxis: bytes / 1073741824};
    var label = {formatter: 'capacity ' + gib(bytes), color: theme.no, position: across ? at_top : 'insideEndTop'};
    if (across) label.align = 'right';
    return {silent: true, z: 95, symbol: 'none', lineStyle: {color: theme.no, type: 'dashed', width: 1.5}, label: label, data: [at],
            animation: false};
  }
  /// Of lists of colours: the theme's, by its name, or one of its own.
  function colour_of(theme, name) { return theme[name] || name; }

