require "json"

def save(settings)
  File.open("cfg.json.new", "w") do |file|
    file.write(JSON.generate(settings))
    file.fsync
  end
  File.rename("cfg.json.new", "cfg.json")
  File.open(".") { |folder| folder.fsync }
end

save({ "colour" => "blue" })
puts "saved"
