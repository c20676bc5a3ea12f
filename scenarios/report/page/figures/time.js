  // -- where time goes ------------------------------------------------------------------------------------------------

  function shares_figure(data) {
    var parts = [['kernels', '#2a8f83', function (s) { return s.kernels; }],
                 ['waiting for other ranks', '#d9a3a0', function (s) { return s.waiting; }],
                 ['host late', '#a3aab3', function (s) { return s.idle; }],
                 ['copies', '#8a6d5a', function (s) { return s.copies; }]];
    data.communicators.forEach(function (name, slot) {
      parts.push(['exposed ' + name, slot_colours[slot % slot_colours.length],
                  function (s) { return s.exposed[name] || 0; }]);
    });
    parts = parts.filter(function (part) {
      return data.stages.some(function (stage) { return part[2](stage.shares) >= 0.0005; });
    });
    function stage_name(stage) { return data.stages.length > 1 ? 'stage ' + stage.stage : 'rank ' + stage.memory.rank; }
    return {
      id: 'step-time', title: 'Where the step’s time goes',
      caption: 'Shares of the compute stream of the rank that is shown of each stage.',
      height: 96 + 24 * data.stages.length,
      option: function (theme) {
        return {
          animation: false,
          grid: {left: 8, right: 24, top: 44, bottom: 30, containLabel: true},
          legend: legend(theme, parts.map(function (part) { return part[0]; })),
          xAxis: axis(theme, {type: 'value', max: 100, name: '% of the step', nameLocation: 'middle', nameGap: 24}),
          yAxis: axis(theme, {type: 'category', inverse: true, data: data.stages.map(stage_name),
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          tooltip: tooltip(theme, {trigger: 'axis', axisPointer: {type: 'shadow'}, valueFormatter: function (v) {
            return v.toFixed(1) + ' %';
          }}),
          series: parts.map(function (part) {
            return {name: part[0], type: 'bar', stack: 'step', color: part[1], barMaxWidth: 16, animation: false,
                    emphasis: {disabled: true},
                    data: data.stages.map(function (stage) { return +(100 * part[2](stage.shares)).toFixed(3); })};
          })
        };
      },
      table: function () {
        return {head: ['stage'].concat(parts.map(function (part) { return part[0] + ' (%)'; })),
                rows: data.stages.map(function (stage) {
                  return [stage.stage].concat(parts.map(function (part) {
                    return +(100 * part[2](stage.shares)).toFixed(3);
                  }));
                })};
      }
    };
  }

  function schedule_figure(data) {
    var c = clock(data.step.length_ns), lanes = data.stages.length;
    var many = lanes > 1;
    function name_of(stage) { return many ? 'stage ' + stage.stage : 'rank ' + stage.memory.rank; }
    function slot_name(slot) { return slot < 0 ? 'copies to and from the host' : data.communicators[slot]; }
    return {
      id: 'schedule', title: 'The schedule, to scale',
      caption: 'Passes of the rank that is shown of each stage, numbered by micro-batch, and below them what it sends ' +
               'and receives. What is left empty is a bubble. Zoom with the bar below, or ctrl and the wheel.',
      height: 120 + Math.max(34, many ? 34 : 60) * lanes,
      option: function (theme) {
        var by_phase = {}, by_slot = {};
        data.stages.forEach(function (stage, lane) {
          stage.lane.passes.forEach(function (p) {
            var phase = data.phases[p[3]];
            (by_phase[phase] = by_phase[phase] || []).push([p[0] / c.scale, p[1] / c.scale, lane, p[4], p[2]]);
          });
          stage.lane.traffic.forEach(function (t) {
            var name = slot_name(t[3]);
            (by_slot[name] = by_slot[name] || {slot: t[3], items: []})
                .items.push([t[0] / c.scale, t[1] / c.scale, lane, t[4], t[2], t[5]]);
          });
        });
        function bar(top, share, text) {
          return function (params, api) {
            var from = api.coord([api.value(0), api.value(2)]), to = api.coord([api.value(1), api.value(2)]);
            var band = api.size([0, 1])[1];
            var box = params.coordSys;
            var left = Math.max(from[0], box.x), right = Math.min(to[0], box.x + box.width);
            if (right < left) return null;
            var shape = {x: left, y: from[1] + band * top, width: Math.max(right - left, 0.5), height: band * share};
            var item = {type: 'rect', shape: shape, style: {fill: api.visual('color')}};
            if (text && api.value(3) >= 0 && shape.width > 16) {
              item.textContent = {style: {text: String(api.value(3)), fill: '#fff', fontSize: 10}};
              item.textConfig = {position: 'inside'};
            }
            return item;
          };
        }
        var series = [];
        Object.keys(by_phase).forEach(function (phase) {
          series.push({name: words(phase), type: 'custom', color: phase_colours[phase], renderItem: bar(-0.42, 0.52, true),
                       encode: {x: [0, 1], y: 2}, data: by_phase[phase], animation: false, clip: true});
        });
        Object.keys(by_slot).forEach(function (name) {
          var slot = by_slot[name].slot;
          series.push({name: name, type: 'custom', renderItem: bar(0.16, 0.2, false), encode: {x: [0, 1], y: 2},
                       color: slot < 0 ? '#7f8791' : slot_colours[slot % slot_colours.length],
                       data: by_slot[name].items, animation: false, clip: true});
        });
        return {
          animation: false,
          grid: {left: 8, right: 14, top: 40, bottom: 64, containLabel: true},
          legend: legend(theme, series.map(function (s) { return s.name; })),
          xAxis: time_axis(theme, c, data.step.length_ns / c.scale, {min: 0}),
          yAxis: axis(theme, {type: 'category', inverse: true, data: data.stages.map(name_of),
                              splitLine: {show: true, lineStyle: {color: theme.line}},
                              axisLabel: {color: theme.ink, fontSize: 12}}),
          dataZoom: zoom(theme, 0, 'weakFilter'),
          tooltip: tooltip(theme, {
            trigger: 'item',
            formatter: function (shown) {
              var v = shown.value, length = (v[1] - v[0]) * c.scale;
              var out = '<b>' + shown.marker + escaped(shown.seriesName) + '</b> ' + name_of(data.stages[v[2]]);
              if (v.length > 5)
                return out + row('from', time(v[0] * c.scale)) + row('takes', time(length)) +
                       row('moving', time(v[4])) + row('bytes', mib(1024 * v[3])) + row('transfers', v[5]);
              if (v[3] >= 0) out += row('micro-batch', v[3]);
              return out + row('from', time(v[0] * c.scale)) + row('takes', time(length)) +
                     row('in kernels', percent(length > 0 ? v[4] / length : 1));
            }
          }),
          series: series
        };
      },
      table: function () {
        var rows = [];
        data.stages.forEach(function (stage) {
          stage.lane.passes.forEach(function (p) {
            rows.push([stage.stage, data.phases[p[3]], p[4] < 0 ? '' : p[4], p[0], p[1], p[2], '', '']);
          });
          stage.lane.traffic.forEach(function (t) {
            rows.push([stage.stage, slot_name(t[3]), '', t[0], t[1], t[2], t[4], t[5]]);
          });
        });
        return {head: ['stage', 'what', 'micro-batch', 'begin (ns)', 'end (ns)', 'busy (ns)', 'KiB', 'transfers'], rows: rows};
      }
    };
  }

