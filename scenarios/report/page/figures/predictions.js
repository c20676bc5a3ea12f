  // -- documents ----------------------------------------------------------------------------------------------------

  function stage_table(data) {
    var p = data.prediction;
    return {
      id: 'stages', title: 'By pipeline stage, the fullest of its ranks',
      head: ['stage', 'ranks', 'allocated', 'reserved', 'device', 'up to', 'to spare', 'peak of allocated at'],
      rows: data.stages.map(function (stage) {
        var of_stage = p.groups.filter(function (g) { return g.coordinates.pp === stage.stage; });
        var g = of_stage.filter(function (group) { return group.ranks[0] === stage.memory.rank; })[0];
        return [stage.stage, of_stage.reduce(function (sum, group) { return sum + group.rank_count; }, 0),
                gib_cell(g.peak_allocated_bytes), gib_cell(g.peak_reserved_bytes), gib_cell(g.peak_device_bytes),
                gib_cell(g.peak_device_upper_bytes),
                gib_cell(p.capacity_bytes - p.headroom_bytes - g.peak_device_upper_bytes), instant(g.allocated_peak_at)];
      })
    };
  }
  function driver_table(group) {
    return {
      id: 'driver-memory', title: 'Behind the allocator, on rank ' + group.ranks[0],
      head: ['what', 'held', 'low', 'high', 'source'],
      rows: group.device_rows.map(function (r) {
        return [r.name, mib_cell(r.bytes), mib_cell(r.low), mib_cell(r.high), r.source];
      })
    };
  }
  function fullest(data) {
    return data.prediction.groups.reduce(function (a, b) {
      return b.peak_device_upper_bytes > a.peak_device_upper_bytes ? b : a;
    });
  }

  function must_have_most(data) {
    return data.prediction.groups.reduce(function (a, b) {
      return b.required_device_upper_bytes > a.required_device_upper_bytes ? b : a;
    });
  }
  /// What the fullest device must have, beside what it has: the answer at a glance.
  function glance_of(data, name) {
    var p = data.prediction, group = must_have_most(data), room = p.capacity_bytes - p.headroom_bytes;
    var lacks = group.required_device_upper_bytes - room, peak = group.peak_device_bytes;
    return {
      name: name || 'rank ' + group.ranks[0], capacity: p.capacity_bytes, must_have: group.required_device_bytes,
      must_have_upper: group.required_device_upper_bytes, answer: data.answer,
      parts: order.filter(function (entry) { return group.at_peak[entry[0]] > 0; }).map(function (entry) {
        // Of the peak, in the proportion of what must be had: what is cached beyond it would be given back.
        return {name: words(entry[0]), colour: entry[1], bytes: group.at_peak[entry[0]] * group.required_device_bytes / peak};
      }),
      said: 'must have ' + gib(group.required_device_bytes) + ' (up to ' + gib(group.required_device_upper_bytes) + ') of ' +
            gib(p.capacity_bytes) + (lacks > 0 ? ': ' + gib(lacks) + ' too much' : ': ' + gib(-lacks) + ' to spare') +
            (p.headroom_bytes > 0 ? ' beside ' + gib(p.headroom_bytes) + ' headroom' : '')
    };
  }
  /// What people ask next.
  function next_of_prediction(data) {
    var file = data.origin.file, p = data.prediction;
    if (p.step_time_s === null) return ['tidemark explain ' + file + ' --show schedule: where it waits for ever'];
    if (data.answer !== true)
      return (p.remedies || []).concat(['tidemark advise ' + file + ': the smallest changes that make it fit, each simulated',
                                        'tidemark explain ' + file + ': which tensors make up the peak']);
    return ['tidemark predict ' + file + ' --largest micro_batch: how far it goes',
            'tidemark plan ' + file + ': whether another layout is faster',
            'tidemark explain ' + file + ': which tensors make up the peak'];
  }

  function prediction_document(data) {
    var p = data.prediction, top = fullest(data), sections = [];
    var document_ = {
      glance: [glance_of(data)], next: next_of_prediction(data),
      figures_of_merit: [
        [gib(top.peak_device_bytes), 'peak of the fullest device'],
        [gib(top.peak_device_upper_bytes), 'up to, of ' + gib(p.capacity_bytes)],
        [gib(top.peak_allocated_bytes), 'allocated in tensors'],
        [gib(top.peak_reserved_bytes), 'reserved by the allocator']
      ],
      sections: sections, assumptions: p.assumptions, not_modelled: p.not_modelled
    };
    if (p.step_time_s === null) return document_;
    document_.figures_of_merit.push([time(1e9 * p.step_time_s), 'a step (' + time(1e9 * p.step_time_low_s) + ' to ' +
                                                                time(1e9 * p.step_time_high_s) + ')'],
                                    [thousands(p.tokens_per_s_per_device), 'tokens/s per device'],
                                    [percent(p.mfu), 'MFU']);
    var many = data.stages.length > 4;
    sections.push({
      title: 'Memory over the step',
      text: 'GiB on the device, by what they are for, over step ' + data.step.number + ' of ' +
            (data.stages.length > 1 ? 'the fullest rank of each pipeline stage.' : 'the fullest rank.') +
            ' Moments stand where the device comes to them; the host thread, which asks for memory, is often ahead.' +
            ' Point at one to see what lives.' +
            (p.outcome === 'out_of_memory' ? ' Memory runs out: this is what would be needed, on devices without a limit.' : ''),
      figures: data.stages.map(function (stage, at) { return memory_figure(data, stage, at > 0); }),
      halves: many
    });
    sections.push({title: 'The peak', figures: [composition_figure(data)], tables: [stage_table(data), driver_table(top)]});
    sections.push({title: 'Time', figures: [schedule_figure(data), shares_figure(data)]});
    sections.push({title: 'All ranks', figures: [heat_figure(data)]});
    if (data.fabric.busiest.length)
      sections.push({title: 'The fabric', figures: [fabric_figure(data)], tables: [links_table(data.fabric)]});
    var host = host_figure(data);
    if (host) sections.push({title: 'Hosts', figures: [host]});
    return document_;
  }

  // -- several predictions --------------------------------------------------------------------------------------------

  /// What tells points of a plane apart, and what is said where one points at them.
  function scatter_figure(id, title, caption, lists, names, capacity) {
    return {
      id: id, title: title, caption: caption, height: 380,
      option: function (theme) {
        var xs = [].concat.apply(capacity ? [capacity / 1073741824] : [], lists.map(function (list) {
          return list.points.map(function (p) { return p.x; });
        }));
        var least = Math.min.apply(null, xs), most = Math.max.apply(null, xs);
        var series = lists.map(function (list) {
          return {name: list.name, type: list.line ? 'line' : 'scatter', color: colour_of(theme, list.colour),
                  symbolSize: list.size || 10, symbol: list.symbol || 'circle', step: false, animation: false,
                  lineStyle: {width: 1.5}, labelLayout: {hideOverlap: true},
                  label: {show: !!list.named, position: 'right', color: theme.ink,
                          formatter: function (p) { return list.points[p.dataIndex].name; }},
                  data: list.points.map(function (p) {
                    return {value: [p.x, p.y], said: p.said, label: {position: p.x > (least + most) / 2 ? 'left' : 'right'}};
                  })};
        });
        if (capacity && series.length) series[0].markLine = capacity_line(theme, capacity, true, 'end');
        return {
          animation: false,
          grid: {left: 64, right: 30, top: 44, bottom: 44},
          legend: legend(theme, lists.map(function (list) { return list.name; })),
          xAxis: axis(theme, {type: 'value', scale: true, name: names[0], nameLocation: 'middle', nameGap: 26}),
          yAxis: axis(theme, {type: 'value', scale: true, name: names[1], nameLocation: 'middle', nameGap: 48}),
          dataZoom: [{type: 'inside', xAxisIndex: 0, filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false},
                     {type: 'inside', yAxisIndex: 0, filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false}],
          tooltip: tooltip(theme, {formatter: function (shown) { return shown.data.said || ''; }}),
          series: series
        };
      },
      table: function () {
        var rows = [];
        lists.forEach(function (list) {
          list.points.forEach(function (p) { rows.push([list.name, p.name, p.x, p.y]); });
        });
        return {head: ['list', 'which', names[0], names[1]], rows: rows};
      }
    };
  }

  function beside_document(data) {
    var reports = data.reports, tops = reports.map(fullest);
    var as_one = {categories: reports[0].categories, prediction: {
      capacity_bytes: Math.max.apply(null, reports.map(function (r) { return r.prediction.capacity_bytes; })),
      groups: tops.map(function (top, i) {
        return {ranks: reports[i].title, at_peak: top.at_peak, peak_device_upper_bytes: top.peak_device_upper_bytes,
                peak_device_bytes: top.peak_device_bytes, peak_at: top.peak_at, title: reports[i].title};
      })
    }};
    var timed = reports.filter(function (r) { return r.prediction.step_time_s !== null; });
    var sections = [{
      title: 'Side by side',
      tables: [{
        id: 'scenarios', title: 'The fullest rank of each',
        head: ['scenario', 'fits', 'allocated', 'reserved', 'device', 'up to', 'capacity', 'step', 'tokens/s', 'MFU'],
        rows: reports.map(function (r, i) {
          var p = r.prediction, top = tops[i], has = p.step_time_s !== null;
          return [r.title, r.answer === null ? 'open' : r.answer ? 'yes' : 'no', gib_cell(top.peak_allocated_bytes),
                  gib_cell(top.peak_reserved_bytes), gib_cell(top.peak_device_bytes),
                  gib_cell(top.peak_device_upper_bytes), gib_cell(p.capacity_bytes),
                  has ? time(1e9 * p.step_time_s) : '', has ? thousands(p.tokens_per_s_per_device) : '',
                  has ? percent(p.mfu) : ''];
        })
      }],
      figures: [composition_figure(as_one), scatter_figure(
        'scenarios-plane', 'Memory and throughput', 'Upper ends of the fullest rank’s memory.',
        [{name: 'scenarios', colour: 'accent', size: 13, named: true, points: timed.map(function (r) {
          var upper = fullest(r).peak_device_upper_bytes, speed = r.prediction.tokens_per_s_per_device;
          return {x: +(upper / 1073741824).toFixed(3), y: +speed.toFixed(1), name: r.title,
                  said: '<b>' + escaped(r.title) + '</b>' + row('up to', gib(upper)) + row('tokens/s', thousands(speed))};
        })}], ['GiB of the fullest device, up to', 'tokens/s per device'], as_one.prediction.capacity_bytes)]
    }, {
      title: 'Memory over the step', text: 'GiB on the fullest rank’s device, by what they are for.',
      figures: timed.map(function (r, i) {
        var figure = memory_figure(r, r.stages[0], i > 0);
        figure.id = 'memory-' + i;
        figure.title = r.title + ', ' + figure.title;
        return figure;
      })
    }];
    var assumptions = [], not_modelled = [];
    reports.forEach(function (r) {
      r.prediction.assumptions.forEach(function (a) { if (assumptions.indexOf(a) < 0) assumptions.push(a); });
      r.prediction.not_modelled.forEach(function (a) { if (not_modelled.indexOf(a) < 0) not_modelled.push(a); });
    });
    return {figures_of_merit: [], sections: sections, assumptions: assumptions, not_modelled: not_modelled,
            glance: reports.map(function (r) { return glance_of(r, r.title); }),
            question: [].concat.apply([], reports.map(function (r) { return r.question.replace(/\n+$/, '').split('\n'); })),
            next: ['tidemark report ' + reports[0].origin.file + ': one of them with all its figures',
                   'tidemark advise FILE: what would make one fit that does not']};
  }

